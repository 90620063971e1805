"""Summaries of latencies: quantiles over the last minute, and how many there were ever and their sum."""

from collections import Counter
from collections.abc import Callable
from math import ceil, exp, log, nan
from time import monotonic_ns

from halimede.core.clock import SECOND

WINDOW_SECONDS = 60
SLICES = 5
"""The window moves by one of so many parts of it at a time."""

_SLICE_NS = WINDOW_SECONDS * SECOND // SLICES
_GROWTH = log(
    1.02
)  # values within a bucket differ by 2 %, so that what is told of them is off by 1 % at most


class Summary:
    """What was observed of one latency.

    Attributes:
        count: how many observations there were.
        total: their sum.
    """

    __slots__ = ("_now", "_slices", "count", "total")

    def __init__(self, now: Callable[[], int] = monotonic_ns) -> None:
        """Nothing was observed; `now` tells the time in nanoseconds."""
        self.count = 0
        self.total = 0
        self._now = now
        self._slices: dict[int, Counter[int]] = {}  # number of the slice of time → bucket → observations

    def observe(self, value: int, times: int = 1) -> None:
        """Count a value that is not negative, `times` over."""
        self.count += times
        self.total += value * times
        number = self._now() // _SLICE_NS
        counts = self._slices.get(number)
        if counts is None:
            self._forget(number)
            counts = self._slices[number] = Counter()
        counts[round(log(value) / _GROWTH) if value > 0 else -1] += times

    def quantile(self, share: float) -> float:
        """The value that so large a share of the last minute's observations does not exceed; NaN if there were none."""
        self._forget(self._now() // _SLICE_NS)
        counts: Counter[int] = Counter()
        for each in self._slices.values():
            counts.update(each)
        left = max(1, ceil(share * counts.total()))
        for bucket, times in sorted(counts.items()):
            left -= times
            if left <= 0:
                return exp(bucket * _GROWTH) if bucket >= 0 else 0.0
        return nan

    def _forget(self, number: int) -> None:
        """Drop what is older than the window, now that it is this slice of time."""
        for old in [each for each in self._slices if each <= number - SLICES]:
            del self._slices[old]


class LatencySummaries:
    """The latencies of a model's successful requests, in microseconds.

    Attributes:
        request: from receipt to response.
        queue: in the queue.
        compute_input, compute_infer, compute_output: of the execution.
        cache_hit, cache_miss: what the response cache took, of requests that it answered and of those that it did not.
    """

    __slots__ = (
        "cache_hit",
        "cache_miss",
        "compute_infer",
        "compute_input",
        "compute_output",
        "queue",
        "request",
    )

    def __init__(self) -> None:
        self.request = Summary()
        self.queue = Summary()
        self.compute_input = Summary()
        self.compute_infer = Summary()
        self.compute_output = Summary()
        self.cache_hit = Summary()
        self.cache_miss = Summary()
