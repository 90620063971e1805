"""CloudWatch's extended statistics: percentiles, and what is known of the values between two bounds.

``p99``                    the value that 99 per cent of all values do not exceed
``tm99``, ``TM(1%:99%)``   trimmed mean: the mean of the values between the bounds
``tc…``, ``ts…``           trimmed count and sum: how many values lie there, and their sum
``wm…``                    winsorized mean: the mean, with values beyond a bound taken as that bound
``PR(:300)``               percentile rank: how many per cent of the values lie there
``IQM``                    interquartile mean: ``TM(25%:75%)``

``tm99`` is short for ``TM(0%:99%)``. Bounds in per cent count values in their order; others are values, of which the
lower one does not belong to the range and the upper one does.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_NUMBER = r"[0-9]+(?:\.[0-9]{1,10})?"
_SHORT = re.compile(rf"(p|(?i:tm|tc|ts|wm))({_NUMBER})")
_RANGE = re.compile(rf"(tm|tc|ts|wm|pr)\((?:(-?{_NUMBER})(%?))?:(?:(-?{_NUMBER})(%?))?\)", re.IGNORECASE)
_IQM = "iqm"

_ALL = 100.0
_EXACT = 1e-9
"""How exact sums of counts are."""

Counted = Sequence[tuple[float, float]]
"""Values with their counts, in order."""


@dataclass(frozen=True, slots=True)
class Extended:
    """An extended statistic.

    Attributes:
        kind: ``p``, ``tm``, ``tc``, ``ts``, ``wm`` or ``pr``.
        low, high: the bounds, for ``p`` the second one.
        is_percent: they are per cent of the values, in their order.
    """

    kind: str
    low: float
    high: float
    is_percent: bool = True

    def of(self, values: Counted) -> float | None:
        """The statistic of some values, of which there is at least one; None if none lies between the bounds."""
        return _KINDS[self.kind](self, values)

    def kept(self, values: Counted) -> Counted:
        """The values between the bounds."""
        if not self.is_percent:
            return [(value, count) for value, count in values if self.low < value <= self.high]
        total = sum(count for _, count in values)
        begin = math.floor(total * self.low / _ALL + _EXACT)
        end = math.ceil(total * self.high / _ALL - _EXACT)
        kept, seen = [], 0.0
        for value, count in values:
            inside = min(seen + count, end) - max(seen, begin)
            seen += count
            if inside > 0:
                kept.append((value, inside))
        return kept


@lru_cache(maxsize=256)
def parse_extended(name: str) -> Extended | None:
    """The extended statistic of a name; None if there is none of that name."""
    if name.lower() == _IQM:
        return Extended("tm", 25.0, 75.0)
    if short := _SHORT.fullmatch(name):
        high = float(short[2])
        return Extended(short[1].lower(), 0.0, high) if high <= _ALL else None
    match = _RANGE.fullmatch(name)
    if match is None or (match[2] is None and match[4] is None):
        return None
    units = {unit for number, unit in ((match[2], match[3]), (match[4], match[5])) if number is not None}
    if len(units) > 1:
        return None
    is_percent = units == {"%"}
    low = float(match[2]) if match[2] is not None else 0.0 if is_percent else -math.inf
    high = float(match[4]) if match[4] is not None else _ALL if is_percent else math.inf
    kind = match[1].lower()
    if low >= high or (is_percent and (kind == "pr" or low < 0 or high > _ALL)):
        return None
    return Extended(kind, low, high, is_percent)


def _percentile(wanted: Extended, values: Counted) -> float | None:
    """The least value that is not less than so many of them (as CloudWatch, and numpy's `inverted_cdf`)."""
    target = sum(count for _, count in values) * wanted.high / _ALL * (1 - _EXACT)
    seen = 0.0
    for value, count in values:
        seen += count
        if seen >= target:
            return value
    return values[-1][0]


def _mean(wanted: Extended, values: Counted) -> float | None:
    kept = wanted.kept(values)
    return _sum_of(kept) / _count_of(kept) if kept else None


def _count(wanted: Extended, values: Counted) -> float | None:
    return _count_of(wanted.kept(values))


def _sum(wanted: Extended, values: Counted) -> float | None:
    return _sum_of(wanted.kept(values))


def _winsorized(wanted: Extended, values: Counted) -> float | None:
    low, high = wanted.low, wanted.high
    if wanted.is_percent:
        kept = wanted.kept(values)
        if not kept:
            return None
        low, high = kept[0][0], kept[-1][0]
    return sum(min(max(value, low), high) * count for value, count in values) / _count_of(values)


def _rank(wanted: Extended, values: Counted) -> float | None:
    return _ALL * _count_of(wanted.kept(values)) / _count_of(values)


def _count_of(values: Counted) -> float:
    return sum(count for _, count in values)


def _sum_of(values: Counted) -> float:
    return sum(value * count for value, count in values)


_KINDS: Mapping[str, Callable[[Extended, Counted], float | None]] = {
    "p": _percentile,
    "tm": _mean,
    "tc": _count,
    "ts": _sum,
    "wm": _winsorized,
    "pr": _rank,
}
