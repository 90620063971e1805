"""Operators between numbers, series and lists of series."""

import math
import operator
from collections.abc import Callable, Mapping

from halimede.hosting.metering.metric_math.values import MathError, TimeSeries, Value, kind_of

Operation = Callable[[float, float], float]


def _quotient(left: float, right: float) -> float:
    return left / right if right else math.nan


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except (ValueError, OverflowError):
        return math.nan


OPERATORS: Mapping[str, Operation] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "^": _power,
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
    "<=": lambda left, right: float(left <= right),
    ">=": lambda left, right: float(left >= right),
    "<": lambda left, right: float(left < right),
    ">": lambda left, right: float(left > right),
    "&&": lambda left, right: float(bool(left) and bool(right)),
    "||": lambda left, right: float(bool(left) or bool(right)),
}


def apply(symbol: str, left: Value, right: Value) -> Value:
    """What an operator makes of two values.

    Between two series there is a value where both have one. A list is combined series by series.

    Raises:
        MathError: it cannot be applied to them.
    """
    if isinstance(left, list) != isinstance(right, list):
        members = left if isinstance(left, list) else right
        assert isinstance(members, list)
        found = [
            apply(symbol, each, right) if isinstance(left, list) else apply(symbol, left, each)
            for each in members
        ]
        return [each for each in found if isinstance(each, TimeSeries)]
    if isinstance(left, (str, list)) or isinstance(right, (str, list)):
        raise MathError(f"Unsupported operand type(s) for {symbol}: '[{kind_of(left)}, {kind_of(right)}]'")
    operation = OPERATORS[symbol]
    if isinstance(left, TimeSeries):
        if isinstance(right, TimeSeries):
            other = right.points
            both = {
                when: operation(value, other[when]) for when, value in left.points.items() if when in other
            }
            return left.with_points(both)
        return left.with_points({when: operation(value, right) for when, value in left.points.items()})
    if isinstance(right, TimeSeries):
        return right.with_points({when: operation(left, value) for when, value in right.points.items()})
    return operation(left, right)
