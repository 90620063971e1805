"""Columns in bounded memory, and `statistics.json`."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.monitoring.features import MAX_CATEGORIES, Column, InferredType
from halimede.hosting.monitoring.statistics_file import BaselineError, read_statistics, write_statistics
from tests.hosting.monitoring.columns import numbers, random, texts


def test_moments_are_those_of_all_values_however_they_come() -> None:
    values = random(1).normal(3, 2, 10_000)
    for chunk in (1, 7, 4096):
        found = numbers(values[: 500 * chunk], chunk=chunk).numbers
        expected = values[: 500 * chunk]
        assert found is not None
        assert found.mean == pytest.approx(expected.mean())
        assert found.deviation == pytest.approx(expected.std())
        assert found.total == pytest.approx(expected.sum())
        assert (found.least, found.most) == (expected.min(), expected.max())


def test_few_values_are_all_kept() -> None:
    values = random(2).normal(size=1_000)
    found = numbers(values).numbers
    assert found is not None
    np.testing.assert_array_equal(found.points, np.sort(values))
    assert set(found.weights) == {1.0}


@pytest.mark.parametrize("count", [10_000, 1_000_000])
def test_ranks_of_many_values_are_right_to_half_a_percent_in_bounded_memory(count: int) -> None:
    values = random(3).gamma(2, size=count)
    found = numbers(values, chunk=65_536).numbers
    assert found is not None
    assert len(found.points) < 8_000
    assert found.count == count
    ranks = np.cumsum(found.weights) / count
    exact = np.searchsorted(np.sort(values), found.points, side="right") / count
    assert np.abs(ranks - exact).max() < 0.005


@given(st.lists(st.integers(1, 5_000), max_size=8))
def test_every_value_has_its_weight(sizes: list[int]) -> None:
    column = Column()
    for size in sizes:
        column.add_numbers(np.arange(float(size)))
    found = column.feature("x").numbers
    assert (0 if found is None else found.count) == sum(sizes)


def test_values_that_are_not_finite_are_missing() -> None:
    feature = numbers(np.array([1.5, np.nan, np.inf, -np.inf]))
    assert (feature.present, feature.missing) == (1, 3)
    assert feature.completeness == 0.25


def test_types_are_inferred_from_all_values() -> None:
    whole = Column()
    whole.add_numbers(np.array([1, 2], np.int32))
    assert whole.feature("x").type is InferredType.INTEGRAL
    whole.add_numbers(np.array([1.5]))
    assert whole.feature("x").type is InferredType.FRACTIONAL
    whole.add_text("n/a")
    assert whole.feature("x").type is InferredType.STRING
    assert Column().feature("x").type is InferredType.UNKNOWN


def test_no_more_than_a_bounded_number_of_texts_is_kept() -> None:
    feature = texts(str(number) for number in range(MAX_CATEGORIES + 500))
    assert len(feature.categories) == MAX_CATEGORIES
    assert feature.present == MAX_CATEGORIES + 500
    assert not feature.are_all_counted


def test_statistics_are_read_as_they_were_written() -> None:
    columns = [
        numbers(random(4).normal(size=50_000), "wide"),
        numbers(np.arange(7), "whole"),
        texts(["a", "a", None, "b"], "text"),
        Column().feature("empty"),
    ]
    content = write_statistics(columns)
    found = read_statistics(content, "statistics.json")
    assert write_statistics(found.values()) == content
    for column in columns:
        again = found[column.name]
        assert (again.type, again.present, again.missing) == (column.type, column.present, column.missing)
    assert found["text"].categories == {"a": 2, "b": 1}


def test_statistics_have_the_members_that_model_monitor_writes() -> None:
    content = write_statistics([numbers(np.arange(100.0), "age"), texts(["a", "b"], "sex")])
    document = orjson.loads(content)
    assert document["dataset"] == {"item_count": 100}
    age, sex = document["features"]
    assert age["inferred_type"] == "Fractional"
    statistics = age["numerical_statistics"]
    assert set(statistics) == {"common", "mean", "sum", "std_dev", "min", "max", "distribution"}
    buckets = statistics["distribution"]["kll"]["buckets"]
    assert [bucket["count"] for bucket in buckets] == [10.0] * 10
    assert (buckets[0]["lower_bound"], buckets[-1]["upper_bound"]) == (0.0, 99.0)
    assert sex["string_statistics"]["distribution"]["categorical"]["buckets"] == [
        {"value": "a", "count": 1},
        {"value": "b", "count": 1},
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"features": [{}]}',
        b'{"features": [{"name": "x", "inferred_type": "Date"}]}',
        b'{"a": 1}',
    ],
)
def test_a_file_that_is_no_statistics_is_refused_with_its_name(content: bytes) -> None:
    with pytest.raises(
        BaselineError, match=r"s3://b/statistics\.json is no statistics\.json of Model Monitor"
    ):
        read_statistics(content, "s3://b/statistics.json")
