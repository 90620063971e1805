"""Two measurements side by side, with confidence intervals of what differs.

Each measurement consists of blocks of time. Drawing blocks from both, with replacement, a thousand times shows how
much a figure varies by chance (a bootstrap): the interval holds 95 % of the ratios that come out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halimede.bench.errors import BenchError
from halimede.bench.histogram import percentiles
from halimede.bench.results import LevelResult, Result

DRAWS = 1000
CONFIDENCE = 95.0
_SEED = 1
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one level in both measurements.

    Attributes:
        level: the level's name.
        figure: its name.
        before, after: its values.
        low, high: the ratio of after to before is between these with 95 % confidence.
        more_is_better: such as of rates.
    """

    level: str
    figure: str
    before: float
    after: float
    low: float
    high: float
    more_is_better: bool

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after / self.before if self.before else float("nan")

    @property
    def verdict(self) -> str:
        """What it means."""
        if self.low <= 1 <= self.high or not self.before:
            return "no difference shown"
        return "better" if (self.low > 1) == self.more_is_better else "worse"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "level": self.level,
            "figure": self.figure,
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
        }


def compare(before: Result, after: Result) -> list[Difference]:
    """The differences of the levels that both have.

    Raises:
        BenchError: they have none in common.
    """
    ours = {level.name: level for level in after.levels}
    pairs = [(level, ours[level.name]) for level in before.levels if level.name in ours]
    if not pairs:
        theirs = ", ".join(level.name for level in before.levels)
        raise BenchError(f"The measurements have no level in common: {theirs}; and {', '.join(ours)}")
    return [difference for pair in pairs for difference in _of_level(*pair)]


def _of_level(before: LevelResult, after: LevelResult) -> list[Difference]:
    random = np.random.default_rng(_SEED)
    draws = [_Draws(level, random) for level in (before, after)]
    differences = [_difference(before.name, "requests/s", draws, _Draws.rate, more_is_better=True)]
    differences.append(_difference(before.name, "mean ms", draws, _Draws.mean, more_is_better=False))
    for percent in (50, 90, 95, 99):
        differences.append(
            _difference(
                before.name,
                f"p{percent} ms",
                draws,
                lambda each, percent=percent: each.percentile(percent),  # type: ignore[misc]
                more_is_better=False,
            )
        )
    return differences


def _difference(
    level: str,
    figure: str,
    draws: "Sequence[_Draws]",
    value: "Callable[[_Draws], Floats]",
    *,
    more_is_better: bool,
) -> Difference:
    """The first value of each side is the measured one, and the others are drawn."""
    before, after = value(draws[0]), value(draws[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = after[1:] / before[1:]
    ratios = ratios[np.isfinite(ratios)]
    edge = (100 - CONFIDENCE) / 2
    low, high = np.percentile(ratios, [edge, 100 - edge]) if len(ratios) else (0.0, np.inf)
    return Difference(
        level, figure, float(before[0]), float(after[0]), float(low), float(high), more_is_better
    )


class _Draws:
    """The blocks of a level, as they are and drawn a thousand times: figures are [1 + draws]."""

    def __init__(self, level: LevelResult, random: np.random.Generator) -> None:
        blocks = level.blocks
        count = len(blocks)
        self._buckets = np.unique(np.concatenate([block.latency.buckets for block in blocks]))
        self._counts = np.zeros((count, len(self._buckets)), np.int64)
        for place, block in enumerate(blocks):
            self._counts[place, np.searchsorted(self._buckets, block.latency.buckets)] = block.latency.counts
        drawn = random.multinomial(count, np.full(count, 1 / count), DRAWS)
        self._weights = np.concatenate([np.ones((1, count), np.int64), drawn])
        self._seconds = np.array([block.seconds for block in blocks])
        self._totals = np.array([block.latency.total for block in blocks], np.float64)

    @property
    def _requests(self) -> Floats:
        counts: Floats = (self._weights @ self._counts.sum(axis=1)).astype(np.float64)
        return counts

    def rate(self) -> Floats:
        """Requests a second."""
        rates: Floats = self._requests / (self._weights @ self._seconds)
        return rates

    def mean(self) -> Floats:
        """Mean latency in ms."""
        means: Floats = self._weights @ self._totals / np.maximum(self._requests, 1) / 1e6
        return means

    def percentile(self, percent: float) -> Floats:
        """A percentile of latency in ms."""
        return percentiles(self._buckets, self._weights @ self._counts, percent) / 1e6
