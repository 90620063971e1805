"""Comparisons with a baseline: right by scipy's own tests, quiet without drift, and loud with it."""

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from halimede.core.tensors import Array
from halimede.hosting.monitoring.comparison import Comparison, compare
from halimede.hosting.monitoring.constraints_file import (
    Check,
    Constraints,
    MonitoringConfig,
    read_constraints,
    write_constraints,
)
from halimede.hosting.monitoring.distances import distance_of_numbers, distance_of_texts
from halimede.hosting.monitoring.features import Column, Feature
from halimede.hosting.monitoring.statistics_file import BaselineError, read_statistics, write_statistics
from tests.hosting.monitoring.columns import numbers, random, texts


def compared(then: Feature, now: Feature) -> Comparison:
    """A column beside its baseline, which comes from files."""
    baseline = read_statistics(write_statistics([then]), "statistics.json")
    constraints = read_constraints(write_constraints(Constraints.suggested([then])), "constraints.json")
    [comparison] = compare([now], baseline, constraints)
    return comparison


def checks(then: Feature, now: Feature) -> list[Check]:
    return [violation.check for violation in compared(then, now).violations]


# scipy


@given(st.integers(0, 10_000), st.integers(2, 900), st.integers(2, 900), st.floats(-1, 1))
def test_numbers_are_compared_as_scipy_does(seed: int, n: int, m: int, shift: float) -> None:
    then, now = random(seed).normal(size=n), random(seed + 1).normal(shift, size=m)
    before, after = numbers(then).numbers, numbers(now).numbers
    assert before is not None
    assert after is not None
    found, expected = distance_of_numbers(before, after), stats.ks_2samp(then, now, method="asymp")
    assert found.largest == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_many_numbers_are_compared_as_scipy_does_to_half_a_percent() -> None:
    then, now = random(1).normal(size=200_000), random(2).normal(0.2, 1.3, size=100_000)
    before, after = numbers(then).numbers, numbers(now).numbers
    assert before is not None
    assert after is not None
    found = distance_of_numbers(before, after)
    assert found.largest == pytest.approx(stats.ks_2samp(then, now).statistic, abs=0.005)


def test_texts_are_compared_as_scipy_does() -> None:
    then, now = {"a": 500, "b": 300, "c": 200}, {"a": 40, "b": 35, "c": 25}
    found = distance_of_texts(then, now)
    assert found.p_value == pytest.approx(stats.chi2_contingency([[500, 300, 200], [40, 35, 25]]).pvalue)
    assert found.largest == pytest.approx(0.1)


def test_population_stability_index_is_that_of_the_baseline_s_deciles() -> None:
    then, now = random(3).normal(size=1_000), random(4).normal(0.5, size=1_000)
    edges = np.sort(then)[np.arange(99, 999, 100)]
    shares = [
        (np.bincount(np.searchsorted(edges, values), minlength=10) + 0.5) / 1_005 for values in (then, now)
    ]
    expected = float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())
    before, after = numbers(then).numbers, numbers(now).numbers
    assert before is not None
    assert after is not None
    assert distance_of_numbers(before, after).psi == pytest.approx(expected)


# no drift


def _samples(kind: int, seed: int, count: int) -> Array:
    source = random(seed)
    drawn: Array = (
        source.normal(size=count),
        source.exponential(size=count),
        source.integers(0, 5, count),
        source.poisson(0.2, count),
        source.uniform(-1e6, 1e6, count),
        np.full(count, 7.0),
    )[kind]
    return drawn


def test_samples_of_one_distribution_hardly_ever_violate_anything() -> None:
    alarms = trials = 0
    for seed in range(40):
        for kind in range(6):
            for now in (20, 200, 2_000):
                trials += 1
                then = numbers(_samples(kind, 2 * seed, 1_000))
                found = checks(then, numbers(_samples(kind, 2 * seed + 1, now)))
                alarms += bool(found)
    assert trials == 720
    assert alarms <= 2


def test_texts_of_one_distribution_hardly_ever_violate_anything() -> None:
    alarms = 0
    for seed in range(200):
        source = random(seed)
        then, now = (source.choice(["a", "b", "c"], size, p=[0.6, 0.3, 0.1]) for size in (1_000, 150))
        alarms += bool(checks(texts(then), texts(now)))
    assert alarms <= 1


@settings(deadline=None)
@given(st.integers(0, 100_000), st.floats(0.01, 0.5))
def test_as_many_missing_values_as_before_are_no_violation(seed: int, share: float) -> None:
    def column(source: np.random.Generator, count: int) -> Feature:
        return numbers(np.where(source.random(count) < share, np.nan, source.normal(size=count)))

    found = checks(column(random(seed), 1_000), column(random(seed + 1), 500))
    # what chance does once in ten thousand times is no failure of the code
    assert Check.COMPLETENESS not in found or share < 0.02


def test_data_that_are_the_baseline_violate_nothing() -> None:
    columns = [numbers(random(5).normal(size=3_000), "a"), texts(["x", None, "y"] * 50, "b")]
    baseline = {column.name: column for column in columns}
    assert all(not each.violations for each in compare(columns, baseline, None))


# drift

_THEN = random(10).normal(size=2_000)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("shift", "scale"), [(0.5, 1.0), (-0.5, 1.0), (0.0, 2.0), (0.0, 0.4), (3.0, 1.0)])
def test_shifts_of_mean_and_variance_are_found(seed: int, shift: float, scale: float) -> None:
    now = random(seed).normal(shift, scale, size=1_000)
    assert checks(numbers(_THEN), numbers(now)) == [Check.DRIFT]


@pytest.mark.parametrize("seed", range(5))
def test_a_second_mode_is_found(seed: int) -> None:
    now = random(seed).normal(size=1_000)
    now[:200] += 8
    found = compared(numbers(_THEN), numbers(now))
    assert [each.check for each in found.violations] == [Check.DRIFT]
    assert "of values are outside of the baseline's range" in found.violations[0].description


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_texts_that_have_moved_are_found(seed: int) -> None:
    then = random(99).choice(["a", "b", "c"], 2_000, p=[0.6, 0.3, 0.1])
    now = random(seed).choice(["a", "b", "c"], 500, p=[0.3, 0.3, 0.4])
    assert checks(texts(then), texts(now)) == [Check.DRIFT]


def test_texts_that_are_new_are_named() -> None:
    found = compared(texts(["a", "b"] * 100), texts(["a", "b"] * 99 + ["c", "d" * 500]))
    assert [each.check for each in found.violations] == [Check.CATEGORIES]
    text = found.violations[0].description
    assert text.startswith("Only 99% of values are among those of the baseline, Expected match: 100%.")
    assert "'c'" in text
    assert len(text) < 250


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.01), (0.05, 0.15)])
def test_values_that_have_gone_missing_are_found(before: float, after: float) -> None:
    def column(seed: int, share: float) -> Feature:
        return texts(None if number < share * 1_000 else "ab"[number % 2] for number in range(1_000))

    found = compared(column(1, before), column(2, after))
    assert [each.check for each in found.violations] == [Check.COMPLETENESS]
    expected = f"{(1 - after) * 100:g}% of data is there, Expected completeness: {(1 - before) * 100:g}%."
    assert found.violations[0].description == f"Values are missing: {expected}"


def test_values_of_another_type_are_found() -> None:
    now = Column()
    now.add_numbers(np.arange(50))
    now.add_numbers(np.full(50, 10.5))
    found = compared(numbers(np.arange(100)), now.feature("x"))
    assert Check.DATA_TYPE in [each.check for each in found.violations]
    assert found.violations[0].description == (
        "Data type match requirement is not met. Expected data type: Integral, Expected match: 100%. "
        "Observed: Only 50% of data is Integral."
    )


def test_whole_numbers_are_fractional_too() -> None:
    assert checks(numbers(np.arange(100.0)), numbers(np.arange(100))) == []


def test_negative_numbers_are_found_where_there_were_none() -> None:
    now = np.abs(_THEN)
    now[3] = -0.5
    found = compared(numbers(np.abs(_THEN)), numbers(now))
    assert [each.description for each in found.violations] == [
        "Values must not be negative, and the least is -0.5."
    ]


def test_columns_that_came_and_went_are_found() -> None:
    then = {"a": numbers(_THEN, "a"), "b": numbers(_THEN, "b")}
    found = compare([numbers(_THEN, "b"), numbers(_THEN, "c")], then, None)
    assert {each.name: [one.check for one in each.violations] for each in found} == {
        "a": [Check.MISSING_COLUMN],
        "b": [],
        "c": [Check.EXTRA_COLUMN],
    }


def test_the_worst_column_comes_first() -> None:
    then = {name: numbers(_THEN, name) for name in "abc"}
    now = [numbers(_THEN + shift, name) for name, shift in (("a", 0.0), ("b", 2.0), ("c", 0.5))]
    assert [each.name for each in compare(now, then, None)] == ["b", "c", "a"]


# baselines of Model Monitor itself


def test_a_baseline_without_sketch_is_compared_by_its_buckets() -> None:
    document = orjson.loads(write_statistics([numbers(_THEN)]))
    del document["features"][0]["numerical_statistics"]["distribution"]["kll"]["sketch"]
    baseline = read_statistics(orjson.dumps(document), "statistics.json")
    [same] = compare([numbers(random(20).normal(size=1_000))], baseline, None)
    [moved] = compare([numbers(random(21).normal(1, size=1_000))], baseline, None)
    assert not same.violations
    assert [each.check for each in moved.violations] == [Check.DRIFT]


def test_switches_of_the_constraints_are_heeded() -> None:
    then, now = numbers(_THEN), numbers(_THEN + 2)
    for config in (MonitoringConfig(evaluates=False), MonitoringConfig(compares=False)):
        constraints = Constraints(Constraints.suggested([then]).features, config)
        [found] = compare([now], {"x": then}, constraints)
        assert not found.violations


def test_thresholds_of_the_constraints_are_heeded() -> None:
    then, now = numbers(_THEN), numbers(_THEN + 0.3)
    strict = MonitoringConfig(numeric_distance=0.01, is_robust=False)
    loose = MonitoringConfig(numeric_distance=0.9, psi=10)
    for config, expected in ((strict, 1), (loose, 0)):
        constraints = Constraints(Constraints.suggested([then]).features, config)
        [found] = compare([now], {"x": then}, constraints)
        assert len(found.violations) == expected


def test_constraints_are_read_as_they_were_written() -> None:
    columns = [numbers(np.arange(9.0), "a"), texts(["u", "v", None], "b"), Column().feature("c")]
    content = write_constraints(Constraints.suggested(columns))
    assert write_constraints(read_constraints(content, "constraints.json")) == content
    entries = {entry["name"]: entry for entry in orjson.loads(content)["features"]}
    assert entries["a"]["num_constraints"] == {"is_non_negative": True}
    assert entries["b"]["string_constraints"] == {"domains": ["u", "v"]}
    assert entries["b"]["completeness"] == pytest.approx(2 / 3)


def test_a_method_that_is_none_is_refused() -> None:
    content = (
        b'{"features": [], "monitoring_config": {"distribution_constraints": {"comparison_method": "KL"}}}'
    )
    with pytest.raises(BaselineError, match="comparison_method is 'KL'; it is Robust or Simple"):
        read_constraints(content, "constraints.json")
