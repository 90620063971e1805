"""Histograms as Prometheus has them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from halimede.core.traces import SpanContext


class Exemplar(NamedTuple):
    """One observation whose request is traced.

    Attributes:
        value: what was observed.
        context: the span of the request.
        time: when it was observed, in seconds since the epoch.
    """

    value: int
    context: SpanContext
    time: float


class Histogram:
    """Counts of observations by upper bound, as Prometheus has them.

    Attributes:
        bounds: inclusive upper bounds of the buckets, ascending; one more bucket takes the rest.
        counts: observations in each bucket (not cumulated); one longer than `bounds`.
        total: sum of all observations.
        exemplars: number of a bucket → its latest observation whose request is traced.
    """

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.exemplars: dict[int, Exemplar] = {}
        self.total: float = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def merge(self, counts: Sequence[int], total: float) -> None:
        """Add observations that were counted elsewhere: so many in each bucket, and their sum."""
        self.counts = [own + other for own, other in zip(self.counts, counts, strict=True)]
        self.total += total

    def keep(self, exemplar: Exemplar) -> None:
        """Remember this observation, which is counted already, for its bucket."""
        self.exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar
