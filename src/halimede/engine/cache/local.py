"""The cache in the server's own memory (`--cache-config=local,size=…`): those used longest ago make room for others."""

from collections import OrderedDict
from typing import Final

from halimede.core.clock import Clock
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.store import CacheCounts, Found

_FORGOTTEN_AT_ONCE: Final = 10_000
"""Entries of a version that is gone are given back in portions, so that requests to others need not wait long."""


class LocalCache:
    """Entries up to a number of bytes. Lives on the event loop.

    Attributes:
        size: so many bytes they may take together.
        used: so many they take.
        counts: what it did.
        outlives: its entries go with the version that they are of.
    """

    outlives = False

    def __init__(self, size: int, clock: Clock) -> None:
        self.size = size
        self.used = 0
        self.counts = CacheCounts()
        self._clock = clock
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # those used last are last

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def largest(self) -> int:
        """The size of the largest entry that it keeps, in bytes."""
        return self.size

    async def begin(self) -> None:
        """It can always be used."""

    def get(self, key: bytes) -> Entry | None:
        """The entry."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def find(self, key: bytes, found: Found) -> None:
        """There is nowhere else to look."""
        found(None)

    def insert(self, key: bytes, entry: Entry) -> None:
        """Keep an entry that is not larger than `largest`, and has bytes of its own."""
        if key in self._entries:
            self._remove(key)
        while self.used + entry.size > self.size:
            self._remove(next(iter(self._entries)))
            self.counts.evictions += 1
        self._entries[key] = entry
        entry.keys.add(key)
        self.used += entry.size

    def forget(self, keys: set[bytes]) -> None:
        """The version whose keys these are is gone, and its entries with it."""
        for _ in range(min(len(keys), _FORGOTTEN_AT_ONCE)):
            self._remove(keys.pop())
        if keys:
            self._clock.call_soon(self.forget, keys)

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key)
        entry.keys.discard(key)
        self.used -= entry.size

    async def close(self) -> None:
        """Nothing is to be given back but memory."""
