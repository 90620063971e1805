"""Which model of an instance goes when another needs its room.

Each request adds 1 to its model's count, and all counts halve again and again. So a count says how often its model is
asked for, and lately above all: with a short half-life the order is that of the least recently used, with an endless
one that of the least frequently used.

Models that were used last are left alone, whatever their counts: one that has just come has had no time to become
popular. How many those are is learned. If most models that come are asked for again before they go, as where each has
its hour, they are many; if most are not, as where some are always popular and others hardly ever, they are few.

Time is told in requests to the instance for each model that it holds, so that quiet instances forget no faster than
busy ones. A count is kept as its logarithm of base 2, at time 0: then it changes only when its model is asked for.
"""

import math
from collections.abc import Collection

from halimede.hosting.routing.residency.entry import Entry
from halimede.hosting.routing.residency.settings import ResidencySettings

_LEARNING = 0.02
"""So much one model counts of the share of those that are asked for again."""

_NEW = 0.6
"""If all models that come are asked for again, so large a share would be left alone."""


class Popularity:
    """How often the models of one instance are asked for."""

    def __init__(self, settings: ResidencySettings) -> None:
        """Nothing has been asked for."""
        self._settings = settings
        self._age = 0.0  # in half-lives
        self._returning = 0.5  # of the models that have come, those that were asked for again

    def came(self, entry: Entry) -> None:
        """A model is to be loaded."""
        entry.is_new = True

    def went(self, entry: Entry) -> None:
        """A model has made room for another."""
        if entry.is_new:
            entry.is_new = False
            self._returning -= _LEARNING * self._returning

    def asked(self, entry: Entry, loaded: int) -> None:
        """A model was asked for, of an instance that holds so many."""
        if entry.is_new:
            entry.is_new = False
            self._returning += _LEARNING * (1 - self._returning)
        self._age += 1 / (self._settings.half_life * max(loaded, 1))
        more, less = self._age, entry.popularity
        if more < less:
            more, less = less, more
        entry.popularity = more + math.log2(1 + 2 ** (less - more))

    def victim(self, idle: Collection[Entry], loaded: int) -> Entry:
        """The model to unload of those that may be, of an instance that holds so many."""
        settings = self._settings
        share = max(settings.least_recent, min(settings.most_recent, _NEW * self._returning))
        recent = int(loaded * share)
        by_use = sorted(idle, key=_used_ns)
        return min(by_use[: max(len(by_use) - recent, 1)], key=_popularity)


def _used_ns(entry: Entry) -> int:
    return entry.used_ns


def _popularity(entry: Entry) -> float:
    return entry.popularity
