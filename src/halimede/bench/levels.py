"""Which levels of load are measured: a range, a list, or a search between two."""

from collections.abc import Callable, Iterator, Sequence

from halimede.bench.plan import Level
from halimede.bench.results import LevelResult


class Sweep:
    """Levels one after the other, until one is not within the limit."""

    def __init__(self, levels: Sequence[Level], within: Callable[[LevelResult], bool]) -> None:
        self._levels = levels
        self._within = within
        self._goes_on = True

    def __iter__(self) -> Iterator[Level]:
        for level in self._levels:
            if self._goes_on:
                yield level

    def tell(self, result: LevelResult) -> None:
        """Take the result of the last level."""
        self._goes_on = self._within(result)


class Bisection:
    """Levels ever closer to the highest one that is within the limit."""

    def __init__(self, levels: Sequence[Level], within: Callable[[LevelResult], bool]) -> None:
        self._levels = levels
        self._within = within
        self._low, self._high = 0, len(levels) - 1
        self._asked = 0

    def __iter__(self) -> Iterator[Level]:
        while self._low <= self._high:
            self._asked = (self._low + self._high) // 2
            yield self._levels[self._asked]

    def tell(self, result: LevelResult) -> None:
        """Take the result of the last level."""
        if self._within(result):
            self._low = self._asked + 1
        else:
            self._high = self._asked - 1
