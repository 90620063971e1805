"""Expressions of metric math, computed over series of one value a minute."""

import math
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.metric_math.evaluation import Expressions
from halimede.hosting.metering.metric_math.values import Context, TimeSeries

NOON = 1_772_625_600
"""A Wednesday."""


def series(label: str, *values: float | None) -> TimeSeries:
    """One value a minute from noon on; None for a minute without one."""
    points = {NOON + 60 * minute: value for minute, value in enumerate(values) if value is not None}
    return TimeSeries(points, 60, label)


METRICS = {
    "m1": series("one", 1, 2, 3, 4),
    "m2": series("two", 10, None, 30, 0),
    "errors": series("errors", 0, 1, 0, 2),
    "gaps": series("gaps", None, 4, None, 8),
    "none": series("none"),
}


def compute(
    expression: str, others: Mapping[str, str] | None = None, metrics: Mapping[str, TimeSeries] = METRICS
) -> list[TimeSeries]:
    expressions = Expressions({"e": expression, **(others or {})}, metrics, {})
    return list(expressions.compute(Context(NOON, NOON + 240, 60, metrics))["e"])


def values(expression: str, **others: str) -> list[float | None]:
    """The four values of the one series of an expression."""
    [found] = compute(expression, others)
    assert set(found.points) <= set(range(NOON, NOON + 240, 60))
    assert list(found.points) == sorted(found.points)
    return [found.points.get(NOON + 60 * minute) for minute in range(4)]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        # operators
        ("m1", [1, 2, 3, 4]),
        ("m1 + 1", [2, 3, 4, 5]),
        ("10 - m1 - 1", [8, 7, 6, 5]),
        ("2 + m1 * 2", [4, 6, 8, 10]),
        ("(2 + m1) * 2", [6, 8, 10, 12]),
        ("-m1 + --1", [0, -1, -2, -3]),
        ("-m1 ^ 2", [-1, -4, -9, -16]),
        ("2 ^ -m1 * 16", [8, 4, 2, 1]),
        ("m1 ^ 2 ^ 0.5 ^ 0", [1, 4, 9, 16]),
        ("m1 / m2", [0.1, None, 0.1, None]),
        ("m1/m2*100", [10, None, 10, None]),
        ("m1 * 1.5e1", [15, 30, 45, 60]),
        ("m1 * .5", [0.5, 1, 1.5, 2]),
        ("m1 > 2", [0, 0, 1, 1]),
        ("m1 >= 2 AND m1 < 4", [0, 1, 1, 0]),
        ("m1 <= 1 || m1 == 4", [1, 0, 0, 1]),
        ("m1 != 2 && m1 > 1 OR m1 == 1", [1, 0, 1, 1]),
        ("0 - 1 + m1 > 1", [0, 0, 1, 1]),
        # summaries
        ("m1 - AVG(m1)", [-1.5, -0.5, 0.5, 1.5]),
        ("SUM([m1, m2])", [11, 2, 33, 4]),
        ("AVG([m1, m2])", [5.5, 2, 16.5, 2]),
        ("MAX([m1, m2])", [10, 2, 30, 4]),
        ("MIN([m1, errors])", [0, 1, 0, 2]),
        ("STDDEV([m1, m1 + 2])", [1, 1, 1, 1]),
        ("DATAPOINT_COUNT([m1, m2, none])", [2, 1, 2, 2]),
        ("TIME_SERIES(DATAPOINT_COUNT(m2))", [3, 3, 3, 3]),
        ("TIME_SERIES(SUM(none))", [0, 0, 0, 0]),
        ("TIME_SERIES(MAX(none))", [None, None, None, None]),
        ('SUM(METRICS("m"))', [11, 2, 33, 4]),
        ("TIME_SERIES(METRIC_COUNT(METRICS()))", [5, 5, 5, 5]),
        # each value
        ("ABS(m1 - 3)", [2, 1, 0, 1]),
        ("CEIL(m1 / 2)", [1, 1, 2, 2]),
        ("FLOOR(m1 / 2)", [0, 1, 1, 2]),
        ("LOG10(m2)", [1, None, math.log10(30), None]),
        ("LOG(errors)", [None, 0, None, math.log(2)]),
        # along time
        ("DIFF(m2)", [None, None, 20, -30]),
        ("DIFF_TIME(m2)", [None, None, 120, 60]),
        ("RATE(m1 * 60)", [None, 1, 1, 1]),
        ("RUNNING_SUM(m1)", [1, 3, 6, 10]),
        ("PERIOD(m1) * m1", [60, 120, 180, 240]),
        ("MINUTE(m1)", [0, 1, 2, 3]),
        ("HOUR(m1)", [12, 12, 12, 12]),
        ("DAY(m1)", [3, 3, 3, 3]),
        ("DATE(m1) + MONTH(m1) * 100 + YEAR(m1) * 10000", [20260304] * 4),
        ("EPOCH(m1) - 1772625600", [0, 60, 120, 180]),
        # what is missing
        ("FILL(m2, 7)", [10, 7, 30, 0]),
        ("FILL(m2, m1)", [10, 2, 30, 0]),
        ("FILL(gaps, REPEAT)", [None, 4, 4, 8]),
        ("FILL(gaps, LINEAR)", [None, 4, 6, 8]),
        ("FILL(none, 0)", [0, 0, 0, 0]),
        ("SUM(FILL([gaps, none], 1))", [2, 5, 2, 9]),
        ("IF(m1 > 2, m1, 0)", [0, 0, 3, 4]),
        ("IF(m1 > 2, m1)", [None, None, 3, 4]),
        ("IF(m1 > 2, 1, m2)", [10, None, 1, 1]),
        ("IF(AVG(m1) > 2, m1, m2)", [1, 2, 3, 4]),
        ("IF(0, m1, m2)", [10, None, 30, 0]),
        ("TIME_SERIES(5)", [5, 5, 5, 5]),
        # lists
        ("FIRST([m2, m1])", [10, None, 30, 0]),
        ("LAST(METRICS('m'))", [10, None, 30, 0]),
        ("LAST(SORT(METRICS('m'), AVG, DESC))", [1, 2, 3, 4]),
        ("FIRST(SORT([m1, m2, none], MAX, ASC))", [1, 2, 3, 4]),
        ("FIRST(SORT([m1, m2], SUM, DESC, 1))", [10, None, 30, 0]),
        ("FIRST(SLICE([m1, m2, errors], 1))", [10, None, 30, 0]),
        ("LAST(SLICE([m1, m2, errors], 0, 2))", [10, None, 30, 0]),
        ("TIME_SERIES(METRIC_COUNT(REMOVE_EMPTY([m1, none])))", [1, 1, 1, 1]),
        ("SUM([m1, m2] * 2)", [22, 4, 66, 8]),
        ("SUM(1 + [m1, [m1, m1]])", [6, 9, 12, 15]),
        ("SUM(DIFF([m1, errors]))", [None, 2, 0, 3]),
        ("SUM(ABS([m1, errors]))", [1, 3, 3, 6]),
    ],
)
def test_expressions_have_these_values(expression: str, wanted: list[float | None]) -> None:
    assert values(expression) == [None if each is None else pytest.approx(each) for each in wanted]


def test_expressions_refer_to_expressions_in_any_order() -> None:
    assert values("b * 2", a="m1 + 1", b="a + 1") == [6, 8, 10, 12]
    assert values("SUM(a) + m1", a="[m1, m2]") == [12, 4, 36, 8]


def test_several_series_stay_several_and_keep_their_names() -> None:
    found = compute("METRICS() / 2")
    assert [each.label for each in found] == ["one", "two", "errors", "gaps", "none"]
    assert list(found[0].points.values()) == [0.5, 1, 1.5, 2]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("m1 +", "expected a number, an id, a function or a bracket at character 5, found the end"),
        ("", "found the end"),
        ("m1 m2", "expected an operator at character 4, found 'm2'"),
        ("(m1", "expected ')' at character 4, found the end"),
        ("m1 ? 2", "unknown character '?' at character 4"),
        ("SUM(m1,)", "at character 8, found ')'"),
        ("AND m1", "found 'AND'"),
        ("m9 + 1", "there is no query with the Id 'm9'"),
        ("LINEAR", "there is no query with the Id 'LINEAR'"),
        ("FOO(m1)", "Unsupported function 'FOO'; there are ABS, AVG, CEIL,"),
        ("sum(m1)", "Unsupported function 'sum'"),
        ('SEARCH("{a} b", "Sum", 60)', "SEARCH is not available in this version"),
        ("ANOMALY_DETECTION_BAND(m1)", "ANOMALY_DETECTION_BAND is not available in this version"),
        ('m1 + "a"', "Unsupported operand type(s) for +: '[TimeSeries, String]'"),
        ("[m1] + [m2]", "Unsupported operand type(s) for +: '[TimeSeries[], TimeSeries[]]'"),
        ("FILL(1, 2)", "Unsupported operand type(s) for FILL: '[Scalar, Scalar]'"),
        ("FILL(m1, AVG)", "Unsupported operand type(s) for FILL: '[TimeSeries, String]'"),
        ("RATE(1)", "Unsupported operand type(s) for RATE: '[Scalar]'"),
        ("SUM(1)", "Unsupported operand type(s) for SUM: '[Scalar]'"),
        ("ABS('x')", "Unsupported operand type(s) for ABS: '[String]'"),
        ("m1 * LOG(0)", "LOG has no value for 0"),
        ("IF([m1], m1, m2)", "Unsupported operand type(s) for IF: '[TimeSeries[], TimeSeries, TimeSeries]'"),
        ("IF(0, m1)", "IF whose condition is a number needs a third argument"),
        ("SORT([m1], LINEAR, ASC)", "SORT takes AVG, MIN, MAX or SUM as its second argument"),
        ("METRICS(1)", "Unsupported operand type(s) for METRICS: '[Scalar]'"),
        ("SUM()", "SUM takes 1 arguments, got 0"),
        ("IF(m1)", "IF takes 2 to 3 arguments, got 1"),
        ("[1]", "an array holds time series, not a Scalar"),
        ("METRIC_COUNT(1)", "Unsupported operand type(s) for METRIC_COUNT"),
        ("TIME_SERIES(m1)", "Unsupported operand type(s) for TIME_SERIES: '[TimeSeries]'"),
        ("AVG(m1)", "the result is a Scalar; it must be a time series or an array of time series"),
        ("5", "the result is a Scalar"),
        ("(" * 41 + "m1" + ")" * 41, "brackets and functions are nested more than 40 deep"),
        ("m1" + "^2" * 41, "powers are nested more than 40 deep"),
    ],
)
def test_expressions_that_cannot_be_computed(expression: str, text: str) -> None:
    with pytest.raises(ApiError) as raised:
        compute(expression)
    assert raised.value.code == "ValidationError"
    assert raised.value.message.startswith("Error in expression 'e': ")
    assert text in raised.value.message


@pytest.mark.parametrize("others", [{"a": "e + 1"}, {"a": "b", "b": "e"}])
def test_circles_are_refused(others: dict[str, str]) -> None:
    with pytest.raises(ApiError, match="Circular reference among the expressions 'e', 'a'") as raised:
        compute("a + m1", others)
    assert raised.value.code == "ValidationError"


def test_long_expressions_and_long_chains_of_expressions_are_computed() -> None:
    assert values("m1" + "+1" * 1000) == [1001, 1002, 1003, 1004]
    assert values("-" * 1000 + "m1") == [1, 2, 3, 4]
    chain = {f"e{number}": f"e{number - 1} + 1" for number in range(1, 499)}
    assert values("e498", e0="m1", **chain) == [499, 500, 501, 502]


def test_too_much_to_compute_is_refused() -> None:
    large = {f"m{number}": series("x", *range(1000)) for number in range(400)}
    with pytest.raises(ApiError, match="the expressions compute too many values"):
        compute("+".join(["SUM(METRICS())"] * 10), metrics=large)
    with pytest.raises(ApiError, match="the expressions compute too many values"):
        Expressions({"e": "TIME_SERIES(1)"}, {}, {}).compute(Context(0, 10**10, 60, {}))


@pytest.mark.parametrize(
    "expression", ["m1 * 10", "SUM(METRICS())", "STDDEV(METRICS()) * 2", "m1 ^ 9", "RUNNING_SUM(m1)"]
)
def test_values_that_are_too_large_are_left_out(expression: str) -> None:
    huge = {"m1": series("x", 1.7e308, 1.0), "m2": series("x", 1.7e308, 1.0)}
    [found] = compute(expression, metrics=huge)
    assert all(map(math.isfinite, found.points.values()))
    assert NOON + 60 in found.points or expression == "RUNNING_SUM(m1)"


@given(st.text(alphabet="m12eSUMIF()[],+-*/^<>=&|\"' .ANDOR", max_size=40))
def test_any_text_is_computed_or_refused(text: str) -> None:
    with suppress(ApiError):
        compute(text)
