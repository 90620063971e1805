"""Values of one metric in one period, as CloudWatch aggregates them.

Percentiles come from a sketch: how many values lie between two powers of a base, which is right to one per cent.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from halimede.hosting.errors import ApiError

_BASE = math.log(1.02)
"""Neighbouring powers differ by two per cent."""

_NEGATIVE = 1 << 20
"""Keys of the powers of negative values lie around this one, far from those of positive values."""

_ZERO = 1 << 21
"""Key of zeros."""

_FEW = 32
"""Fewer values are added faster one by one."""

_EXACT = 1e-9
"""How exact sums of counts are."""

STATISTICS = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")

_PERCENTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,10})?|100)")


@dataclass(slots=True)
class Values:
    """What is known of some values.

    Attributes:
        count: how many there are.
        total: their sum.
        minimum, maximum: the least and the greatest.
        sketch: power → how many values are about that large. Values that came as sums only are missing.
    """

    count: float = 0.0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    sketch: dict[int, float] = field(default_factory=dict)

    def add(self, value: float, count: float = 1.0) -> None:
        """Count a value, so many times."""
        self.count += count
        self.total += value * count
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        power = _power(value)
        self.sketch[power] = self.sketch.get(power, 0) + count

    def add_all(self, values: Sequence[float]) -> None:
        """Count values of which none is negative."""
        if len(values) < _FEW:
            for value in values:
                self.add(value)
            return
        array = np.asarray(values, float)
        self.count += len(values)
        self.total += float(array.sum())
        self.minimum = min(self.minimum, float(array.min()))
        self.maximum = max(self.maximum, float(array.max()))
        positive = array[array > 0]
        powers, counts = np.unique(np.rint(np.log(positive) / _BASE).astype(int), return_counts=True)
        for power, count in zip(powers.tolist(), counts.tolist(), strict=True):
            self.sketch[power] = self.sketch.get(power, 0) + count
        if len(positive) < len(values):
            self.sketch[_ZERO] = self.sketch.get(_ZERO, 0) + len(values) - len(positive)

    def merge(self, other: "Values") -> None:
        """Count all values of another."""
        self.count += other.count
        self.total += other.total
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)
        for power, count in other.sketch.items():
            self.sketch[power] = self.sketch.get(power, 0) + count

    def statistic(self, name: str) -> float | None:
        """A statistic of the values, of which there is at least one; None for a percentile that is not known.

        Args:
            name: one of `STATISTICS`, or a percentile such as ``p99`` or ``p99.9``.

        Raises:
            ApiError: there is no such statistic.
        """
        if name == "SampleCount":
            return self.count
        if name == "Sum":
            return self.total
        if name == "Average":
            return self.total / self.count
        if name == "Minimum":
            return self.minimum
        if name == "Maximum":
            return self.maximum
        return self._percentile(percent_of(name))

    def _percentile(self, percent: float) -> float | None:
        """The least value that is not less than so many of them (as CloudWatch, and numpy's `inverted_cdf`)."""
        wanted = (self.count * percent / 100) * (1 - _EXACT)
        if sum(self.sketch.values()) < self.count * (1 - _EXACT):
            return None
        if percent in (0, 100):
            return self.maximum if percent else self.minimum
        seen = 0.0
        for value, count in sorted((_value(power), count) for power, count in self.sketch.items()):
            seen += count
            if seen >= wanted:
                return min(max(value, self.minimum), self.maximum)
        return self.maximum


def percent_of(name: str) -> float:
    """The percentage that a percentile's name says.

    Raises:
        ApiError: it is none.
    """
    match = _PERCENTILE.fullmatch(name)
    if match is None:
        msg = f"there is no statistic '{name}' here; there are {', '.join(STATISTICS)} and percentiles such as p99"
        raise ApiError("InvalidParameterValue", msg)
    return float(match[1])


def _power(value: float) -> int:
    if not value:
        return _ZERO
    return round(math.log(abs(value)) / _BASE) + (_NEGATIVE if value < 0 else 0)


def _value(power: int) -> float:
    if power == _ZERO:
        return 0.0
    if power > _NEGATIVE // 2:
        return -math.exp((power - _NEGATIVE) * _BASE)
    return math.exp(power * _BASE)
