"""When requests are to be sent in an open loop, whatever becomes of the earlier ones."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.bench.errors import BenchError

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A load that arrives by itself.

    Attributes:
        rate: requests a second, on average.
        poisson: the gaps are random (exponentially distributed); otherwise all are equal.
        gaps: recorded gaps in ns, one after the other and then from the start; they take the place of the rate.
    """

    rate: float
    poisson: bool = False
    gaps: tuple[int, ...] = ()

    def share(self, index: int, processes: int, seed: int) -> Iterator[int]:
        """What one of so many processes sends: times in ns since the start, ascending, without end."""
        if self.gaps:
            times = itertools.accumulate(itertools.cycle(self.gaps))
            return itertools.islice(times, index, None, processes)
        if self.poisson:
            return self._random(random.Random(seed * 1009 + index), self.rate / processes)  # noqa: S311
        gap = _SECOND / self.rate
        return (round((number * processes + index) * gap) for number in itertools.count())

    @staticmethod
    def _random(source: random.Random, rate: float) -> Iterator[int]:
        at = 0.0
        while True:
            at += source.expovariate(rate)
            yield round(at * _SECOND)


def recorded(gaps: Sequence[int]) -> Arrivals:
    """Arrivals with these gaps in ns."""
    total = sum(gaps)
    if not gaps or total <= 0 or min(gaps) < 0:
        raise BenchError("A recorded load needs gaps of at least 0, and one that is greater")
    return Arrivals(len(gaps) / total * _SECOND, gaps=tuple(gaps))


def read_intervals(path: Path) -> Arrivals:
    """Arrivals from a file of gaps in microseconds, one a line.

    Raises:
        BenchError: it cannot be read, or a line is no whole number.
    """
    return recorded([round(number * 1000) for number in _numbers(path, "a gap in microseconds")])


def read_trace(path: Path) -> Arrivals:
    """Arrivals from a file of times in seconds, one a line, ascending; the first one is the start.

    Raises:
        BenchError: it cannot be read, or a line is no number, or less than the one before it.
    """
    times = _numbers(path, "a time in seconds")
    if len(times) < 2:
        raise BenchError(f"{path} has {len(times)} times: a trace needs two or more")
    gaps = [round((later - earlier) * _SECOND) for earlier, later in itertools.pairwise(times)]
    for number, gap in enumerate(gaps, 2):
        if gap < 0:
            raise BenchError(f"{path}, time {number}: it is earlier than the one before it")
    return recorded(gaps)


def _numbers(path: Path, what: str) -> list[float]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"{path} cannot be read: {error}") from None
    numbers = []
    for number, line in enumerate(lines, 1):
        text = line.split(",")[0].strip()
        if not text or text.startswith("#"):
            continue
        try:
            numbers.append(float(text))
        except ValueError:
            raise BenchError(f"{path}, line {number}: '{text}' is not {what}") from None
    return numbers
