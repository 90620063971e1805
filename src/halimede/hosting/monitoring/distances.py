"""How far apart two distributions are, and whether that can be chance. The only module that needs scipy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from halimede.core.tensors import Array
from halimede.hosting.monitoring.features import Numbers

CHANCE = 1e-4
"""What comes about by chance less often than this is no chance."""

_BINS = 10
"""Deciles of the baseline, for the population stability index."""

_FEW_VALUES = 20
"""Numbers with no more different values than this have a bin for each."""

_RARE = 10
"""Texts that are there less often than this, in both together, are counted as one."""

_ROBUST = 1.8
"""Of SageMaker's method `Robust`: a distance is made smaller by so much times √((n + m) / (n · m))."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far apart two distributions are.

    Attributes:
        largest: the largest difference of their cumulative shares, or of the shares of one text: 0 to 1.
        p_value: how often chance alone makes a difference as large: Kolmogorov-Smirnov's test for numbers, the χ² test
            for texts.
        psi: the population stability index.
        psi_by_chance: what chance makes of that, all but once in ten thousand times.
        robust: the largest difference without what chance may have made of it, as SageMaker computes it.
    """

    largest: float
    p_value: float
    psi: float
    psi_by_chance: float
    robust: float


def distance_of_numbers(baseline: Numbers, now: Numbers) -> Distance:
    """How far apart two distributions of numbers are."""
    known = baseline.points if not baseline.is_sketch else np.union1d(baseline.points, now.points)
    gaps = np.abs(_cumulative(baseline, known) - _cumulative(now, known))
    largest = float(gaps.max())
    n, m = baseline.count, now.count
    p_value = float(stats.kstwo.sf(largest, max(1, round(n * m / (n + m)))))
    psi, bins = _psi_of_numbers(baseline, now)
    return Distance(largest, p_value, psi, _psi_by_chance(bins, n, m), _robust(largest, n, m))


def distance_of_texts(
    baseline: Mapping[str, int], now: Mapping[str, int], uncounted: tuple[int, int] = (0, 0)
) -> Distance:
    """How far apart two distributions of texts are.

    Args:
        baseline: text → how often it is there.
        now: the same, of the other one.
        uncounted: how many texts of each were not counted one by one.
    """
    names = sorted({*baseline, *now})
    table = np.array([[of.get(name, 0) for name in names] for of in (baseline, now)], float).reshape(2, -1)
    n, m = table[0].sum() + uncounted[0], table[1].sum() + uncounted[1]
    largest = float(np.abs(table[0] / n - table[1] / m).max(initial=0.0))
    is_rare = table.sum(axis=0) < _RARE
    rest = table[:, is_rare].sum(axis=1) + np.array(uncounted, float)
    kept = np.column_stack([table[:, ~is_rare], rest])
    kept = kept[:, kept.sum(axis=0) > 0]
    p_value = float(stats.chi2_contingency(kept, correction=False).pvalue) if kept.shape[1] > 1 else 1.0
    return Distance(
        largest, p_value, _psi(kept[0], kept[1]), _psi_by_chance(kept.shape[1], n, m), _robust(largest, n, m)
    )


def is_by_chance_outside(outside: int, now: int, baseline: int) -> bool:
    """Whether so many of `now` values can lie outside of the range of `baseline` values of the same distribution."""
    return float(stats.betabinom.sf(outside - 1, now, 2, max(1, baseline - 1))) > CHANCE


def is_by_chance_missing(missing: int, now: int, share: float, baseline: tuple[int, int] | None) -> bool:
    """Whether so many values can be missing by chance.

    Args:
        missing: how many are.
        now: of how many.
        share: which share of the baseline's is missing.
        baseline: how many of the baseline's are missing, and how many are there; None if that is not known.
    """
    if baseline is None:
        return float(stats.binom.sf(missing - 1, now, share)) > CHANCE
    return float(stats.betabinom.sf(missing - 1, now, baseline[0] + 1, baseline[1] + 1)) > CHANCE


def shares_of(numbers: Numbers, edges: Array) -> Array:
    """Which share of numbers lies up to the first edge, between each two, and beyond the last one."""
    counts = np.bincount(np.searchsorted(edges, numbers.points), numbers.weights, len(edges) + 1)
    shares: Array = counts / counts.sum()
    return shares


def _cumulative(numbers: Numbers, at: Array) -> Array:
    """Which share of the numbers is no greater than each of some values."""
    sums = np.concatenate([[0.0], np.cumsum(numbers.weights)])
    shares: Array = sums[np.searchsorted(numbers.points, at, side="right")] / sums[-1]
    return shares


def _psi_of_numbers(baseline: Numbers, now: Numbers) -> tuple[float, int]:
    """The index, and of how many bins."""
    values = np.unique(baseline.points)
    if not baseline.is_sketch:
        edges = values[:-1]
    elif len(values) <= _FEW_VALUES:
        middles = (values[:-1] + values[1:]) / 2
        edges = np.concatenate([[np.nextafter(values[0], -np.inf)], middles, [values[-1]]])
    else:
        ranks = np.cumsum(baseline.weights) / baseline.count
        deciles = np.searchsorted(ranks, np.arange(1, _BINS) / _BINS)
        edges = np.unique(baseline.points[deciles])
    counts = [shares_of(numbers, edges) * numbers.count for numbers in (baseline, now)]
    return _psi(counts[0], counts[1]), len(edges) + 1


def _psi(baseline: Array, now: Array) -> float:
    """The index of two rows of counts; half a value in each bin keeps it finite."""
    expected = (baseline + 0.5) / (baseline.sum() + 0.5 * len(baseline))
    found = (now + 0.5) / (now.sum() + 0.5 * len(now))
    return float(((found - expected) * np.log(found / expected)).sum())


def _psi_by_chance(bins: int, n: float, m: float) -> float:
    return float(stats.chi2.isf(CHANCE, max(1, bins - 1)) * (1 / n + 1 / m))


def _robust(largest: float, n: float, m: float) -> float:
    return max(0.0, largest - _ROBUST * math.sqrt((n + m) / (n * m)))
