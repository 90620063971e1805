"""What metric math computes with: time series, lists of them, and numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


class MathError(Exception):
    """An expression cannot be read or computed; the text says why."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Values at times.

    Attributes:
        points: time in seconds since 1970 → value, in the order of time.
        period: seconds from one time to the next, if no value is missing.
        label: what it is called.
    """

    points: dict[int, float]
    period: int
    label: str = ""

    def with_points(self, points: dict[int, float]) -> "TimeSeries":
        """The same with other values; those that are no numbers are left out."""
        finite = {when: value for when, value in points.items() if math.isfinite(value)}
        return TimeSeries(finite, self.period, self.label)

    def map(self, function: Callable[[float], float]) -> "TimeSeries":
        """The series of a function's values; there is none where the function has none."""
        return self.with_points({when: _value(function, value) for when, value in self.points.items()})


Value = float | str | TimeSeries | list[TimeSeries]
"""A number, a text or keyword, one series or several."""


def _value(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except (ValueError, OverflowError):
        return math.nan


def kind_of(value: Value) -> str:
    """What CloudWatch's errors call a value."""
    if isinstance(value, TimeSeries):
        return "TimeSeries"
    if isinstance(value, list):
        return "TimeSeries[]"
    return "String" if isinstance(value, str) else "Scalar"


@dataclass(slots=True)
class Context:
    """What is known where an expression is computed.

    Attributes:
        begin: when the first period begins, in seconds since 1970.
        end: values of this time and later do not count.
        period: of series that come from no metric, in seconds.
        metrics: id → series of the queries for metrics, in their order.
        results: id → value of the expressions that have been computed.
        budget: so many values may still be computed.
    """

    begin: int
    end: float
    period: int
    metrics: Mapping[str, TimeSeries]
    results: dict[str, Value] = field(default_factory=dict)
    budget: int = 2_000_000

    def times(self, period: int) -> Sequence[int]:
        """When the periods of the request begin."""
        return range(self.begin, math.ceil(self.end), period)

    def spend(self, count: int) -> None:
        """Count values that an operation looks at or makes.

        Raises:
            MathError: they are too many.
        """
        self.budget -= count
        if self.budget < 0:
            raise MathError("the expressions compute too many values; ask for fewer periods or metrics")


def count_of(value: Value) -> int:
    """How many values there are in a value."""
    if isinstance(value, list):
        return sum(len(series.points) for series in value)
    return len(value.points) if isinstance(value, TimeSeries) else 1
