"""Statistics of values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.statistics import Values, check_extended

NUMBERS = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-9)
DURATIONS = st.integers(0, 10**11)


def values_of(numbers: list[float]) -> Values:
    values = Values()
    for number in numbers:
        values.add(number)
    return values


def is_close(got: float | None, wanted: float) -> bool:
    return got is not None and math.isclose(got, wanted, rel_tol=0.01, abs_tol=1e-12)


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.floats(0, 100))
def test_percentiles_are_right_to_one_per_cent(numbers: list[float], percent: float) -> None:
    percent = round(percent, 2)
    wanted = float(np.percentile(numbers, percent, method="inverted_cdf"))
    assert is_close(values_of(numbers).statistic(f"p{percent:g}"), wanted)


@given(st.lists(NUMBERS, min_size=1, max_size=100), st.lists(NUMBERS, min_size=1, max_size=100))
def test_merged_values_are_as_if_they_had_been_added(left: list[float], right: list[float]) -> None:
    merged, both = values_of(left), values_of(left + right)
    merged.merge(values_of(right))
    for name in ("SampleCount", "Minimum", "Maximum", "p0", "p50", "p99.9", "p100"):
        assert merged.statistic(name) == both.statistic(name)
    assert math.isclose(merged.total, both.total, rel_tol=1e-9, abs_tol=1e-3)


@given(st.lists(DURATIONS, min_size=1, max_size=300))
def test_many_at_once_are_as_good_as_one_by_one(numbers: list[int]) -> None:
    at_once = Values()
    at_once.add_all([float(number) for number in numbers])
    single = values_of([float(number) for number in numbers])
    assert (at_once.count, at_once.minimum, at_once.maximum) == (single.count, single.minimum, single.maximum)
    assert math.isclose(at_once.total, single.total, rel_tol=1e-12)
    for percent in ("p1", "p50", "p99"):
        assert is_close(at_once.statistic(percent), single.statistic(percent) or 0.0)


def test_statistics_of_a_few() -> None:
    values = values_of([4.0, 1.0, 0.0, -2.0])
    names = ("SampleCount", "Sum", "Average", "Minimum", "Maximum", "p0", "p25", "p50", "p100")
    wanted = [4, 3, 0.75, -2, 4, -2, -2, 0, 4]
    assert [values.statistic(name) for name in names] == pytest.approx(wanted, rel=0.01)


def test_a_count_weighs() -> None:
    values = Values()
    values.add(1, 99)
    values.add(100, 1)
    assert [values.statistic(name) for name in ("SampleCount", "Average", "p99", "p99.5")] == [
        100,
        1.99,
        1,
        100,
    ]


def test_ranks_are_exact_in_spite_of_rounding() -> None:
    values = values_of([float(number) for number in range(1, 1001)])
    assert is_close(values.statistic("p99.9"), 999)
    assert is_close(values.statistic("p10"), 100)


def test_of_sums_alone_no_percentile_is_known() -> None:
    values = Values(10, 100, 1, 50)
    assert values.statistic("Average") == 10
    assert values.statistic("p50") is None
    values.merge(values_of([1.0] * 1000))
    assert values.statistic("p50") is None


@pytest.mark.parametrize("number", [2.0**360, -(2.0**360), 1e-300, 5e-324])
def test_extreme_values(number: float) -> None:
    assert values_of([number]).statistic("p50") == number


@pytest.mark.parametrize("name", ["p", "p101", "p-1", "p1.", "P50", "p٥", "IQR", "average", "", "p99 "])
def test_statistics_that_there_are_not(name: str) -> None:
    with pytest.raises(ApiError, match=r"there is no statistic .* percentiles such as p99") as error:
        check_extended(name)
    assert error.value.code == "InvalidParameterValue"


TEN = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 1000.0]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tm90", 50),
        ("TM(:90%)", 50),
        ("TM(10%:90%)", 55),
        ("tm100", 145),
        ("TM(25:65)", 45),
        ("TM(20:)", (30 + 40 + 50 + 60 + 70 + 80 + 90 + 1000) / 8),
        ("TM(2000:3000)", None),
        ("iqm", 55),  # ranks 3 to 8
        ("tc90", 9),
        ("TC(15:45)", 3),
        ("TC(2000:3000)", 0),
        ("ts90", 450),
        ("TS(80%:100%)", 1090),
        ("wm90", (450 + 90) / 10),
        ("WM(10%:90%)", (20 + 440 + 90) / 10),
        ("WM(30:70)", (30 * 3 + 40 + 50 + 60 + 70 * 4) / 10),
        ("PR(:90)", 90),
        ("pr(95:)", 10),
        ("PR(15:95)", 80),
    ],
)
def test_ranges_of_values(name: str, wanted: float | None) -> None:
    got = values_of(TEN).statistic(name)
    # the sketch is right to one per cent, so bounds in the tests are further than that from the values
    assert got == (None if wanted is None else pytest.approx(wanted, rel=0.011))


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.integers(0, 100))
def test_equal_values_have_themselves_as_any_mean(numbers: list[float], percent: int) -> None:
    same = values_of([numbers[0]] * len(numbers))
    for name in ("IQM", f"tm{max(percent, 1)}", f"wm{max(percent, 1)}"):
        assert same.statistic(name) == pytest.approx(numbers[0], rel=1e-9)


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.floats(0, 49), st.floats(51, 100))
def test_trimmed_values_are_counted_and_lie_between_bounds(
    numbers: list[float], low: float, high: float
) -> None:
    values, bounds = values_of(numbers), f"({low:.2f}%:{high:.2f}%)"
    count, mean = values.statistic(f"TC{bounds}"), values.statistic(f"TM{bounds}")
    assert count is not None
    assert mean is not None
    assert 1 <= count <= len(numbers)
    assert min(numbers) * (1 - 1e-9 * math.copysign(1, min(numbers))) <= mean
    assert mean <= max(numbers) * (1 + 1e-9 * math.copysign(1, max(numbers)))


def test_ranges_of_sums_are_not_known() -> None:
    known = Values(3, 6.0, 1.0, 3.0)
    assert known.statistic("tm90") is None
    assert known.statistic("Average") == 2


@pytest.mark.parametrize(
    "name",
    [
        "tm101",
        "tm",
        "TM()",
        "TM(:)",
        "TM(90%:10%)",
        "TM(10:90%)",
        "PR(1%:2%)",
        "TM(-1%:5%)",
        "pr90",
        "xx9",
        "P",
    ],
)
def test_names_of_no_range_are_refused(name: str) -> None:
    with pytest.raises(ApiError, match="there is no statistic") as raised:
        values_of([1.0]).statistic(name)
    assert raised.value.code == "InvalidParameterValue"
