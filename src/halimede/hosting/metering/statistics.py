"""Values of one metric in one period, as CloudWatch aggregates them.

Extended statistics come from a sketch: how many values lie between two powers of a base, which is right to one per
cent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.extended_statistics import Extended, parse_extended

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

_MAX_SHOWN = 64


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
        """A statistic of the values, of which there is at least one; None if it is not known.

        Args:
            name: one of `STATISTICS`, or an extended one such as ``p99.9`` or ``tm99``.

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
        return self._extended(_parsed(name))

    def _extended(self, wanted: Extended) -> float | None:
        if sum(self.sketch.values()) < self.count * (1 - _EXACT):
            return None
        if wanted.kind == "p" and wanted.high in (0, 100):
            return self.maximum if wanted.high else self.minimum
        return wanted.of(
            [(min(max(value, self.minimum), self.maximum), count) for value, count in self.histogram()]
        )

    def histogram(self) -> list[tuple[float, float]]:
        """Values, ascending, and how many are about that large: to one per cent."""
        return sorted((_value(power), count) for power, count in self.sketch.items())


def check_statistic(name: str) -> None:
    """Refuse what is no statistic.

    Raises:
        ApiError: there is no such statistic.
    """
    if name not in STATISTICS:
        _parsed(name)


def check_extended(name: str) -> None:
    """Refuse what is no extended statistic.

    Raises:
        ApiError: there is no such extended statistic.
    """
    _parsed(name)


def _parsed(name: str) -> Extended:
    extended = parse_extended(name)
    if extended is None:
        msg = (
            f"there is no statistic '{name[:_MAX_SHOWN]}' here; there are {', '.join(STATISTICS)}, percentiles such as "
            f"p99, IQM, and ranges such as tm99, TM(2%:98%), tc, ts, wm and PR(:300)"
        )
        raise ApiError("InvalidParameterValue", msg)
    return extended


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
