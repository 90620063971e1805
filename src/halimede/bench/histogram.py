"""Times in a histogram whose buckets are at most 0.1 % wide, as HDR histograms are with three significant digits.

Values are whole nanoseconds. Those below 2,048 ns have a bucket each; above, each power of two is divided into 1,024
buckets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
_PER_OCTAVE = 1024
_LINEAR = 2 * _PER_OCTAVE
_LINEAR_BITS = 11


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of times.

    Attributes:
        buckets: the buckets in use, ascending.
        counts: how many values are in each.
        total: the sum of all values, in ns.
        minimum: the least value, in ns; 0 if there is none.
        maximum: the largest value, in ns; 0 if there is none.
    """

    buckets: Integers
    counts: Integers
    total: int
    minimum: int
    maximum: int

    @classmethod
    def of(cls, values: Integers) -> Self:
        """The histogram of these values, in ns; negative ones count as 0."""
        if not len(values):
            return cls.empty()
        values = np.maximum(values, 0)
        buckets, counts = np.unique(_bucket(values), return_counts=True)
        return cls(
            buckets.astype(np.int64),
            counts.astype(np.int64),
            int(values.sum()),
            int(values.min()),
            int(values.max()),
        )

    @classmethod
    def empty(cls) -> Self:
        """The histogram of no values."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, 0, 0, 0)

    @classmethod
    def merged(cls, parts: Iterable["Histogram"]) -> Self:
        """One histogram of the values of all."""
        filled = [part for part in parts if part.count]
        if not filled:
            return cls.empty()
        buckets, places = np.unique(np.concatenate([part.buckets for part in filled]), return_inverse=True)
        counts = np.zeros(len(buckets), np.int64)
        np.add.at(counts, places, np.concatenate([part.counts for part in filled]))
        return cls(
            buckets,
            counts,
            sum(part.total for part in filled),
            min(part.minimum for part in filled),
            max(part.maximum for part in filled),
        )

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean in ns; 0 if there is no value."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation in ns; 0 if there is no value."""
        if not self.count:
            return 0.0
        distances = _middles(self.buckets) - self.mean
        return float(np.sqrt(np.average(distances**2, weights=self.counts)))

    def percentile(self, percent: float) -> float:
        """The value in ns that so many percent of the values do not exceed; 0 if there is no value."""
        if not self.count:
            return 0.0
        return float(percentiles(self.buckets, self.counts[None, :], percent)[0])

    def to_json(self) -> dict[str, Any]:
        """A form of plain lists and numbers."""
        return {
            "buckets": self.buckets.tolist(),
            "counts": self.counts.tolist(),
            "total_ns": self.total,
            "min_ns": self.minimum,
            "max_ns": self.maximum,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The histogram that `to_json` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not of that form.
        """
        return cls(
            np.array(document["buckets"], np.int64),
            np.array(document["counts"], np.int64),
            int(document["total_ns"]),
            int(document["min_ns"]),
            int(document["max_ns"]),
        )


def percentiles(buckets: Integers, counts: Integers, percent: float) -> NDArray[np.float64]:
    """The percentile in ns of each row of `counts` ([rows, buckets]), whose buckets are these."""
    sums = np.cumsum(counts, axis=1)
    needed = np.maximum(np.ceil(sums[:, -1] * percent / 100 - 1e-9), 1)
    places = (sums < needed[:, None]).sum(axis=1)
    found: NDArray[np.float64] = _middles(buckets)[np.minimum(places, len(buckets) - 1)]
    return found


@cache
def _first_of_octaves() -> Integers:
    return np.int64(1) << np.arange(_LINEAR_BITS, 63, dtype=np.int64)


def _bucket(values: Integers) -> Integers:
    octave = np.searchsorted(_first_of_octaves(), values, side="right").astype(np.int64)
    buckets: Integers = octave * _PER_OCTAVE + (values >> octave)
    return buckets


def _middles(buckets: Integers) -> NDArray[np.float64]:
    octave = np.maximum(buckets // _PER_OCTAVE - 1, 0)
    least = (buckets - octave * _PER_OCTAVE) << octave
    middles: NDArray[np.float64] = least + ((np.int64(1) << octave) - 1) / 2
    return middles
