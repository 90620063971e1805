"""What the caches have in common: finding and keeping entries, and what is counted of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from halimede.engine.cache.entries import Entry

Found = Callable[[Entry | None], None]
"""Called with the entry that was looked up; None if there is none, or the cache does not tell in time."""


@dataclass(slots=True)
class CacheCounts:
    """What a cache did since the server was started.

    Attributes:
        hits: requests that it answered, also those that waited for the response to another.
        misses: requests that had to be computed.
        evictions: entries that made room for others.
        lookup_ns: time of all look-ups.
        insertion_ns: time of all insertions.
    """

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0


class Cache(Protocol):
    """A cache, which all models of the server share. Lives on the event loop.

    Attributes:
        counts: what it did.
        outlives: it keeps entries longer than the server runs, and shares them with other servers.
    """

    counts: CacheCounts
    outlives: bool

    @property
    def largest(self) -> int:
        """The size of the largest entry that it keeps, in bytes."""

    async def begin(self) -> None:
        """Look whether it can be used, before the server starts.

        Raises:
            InvalidArgumentError: it refuses this server for good; the text says why.
        """

    def get(self, key: bytes) -> Entry | None:
        """The entry, if it is in the memory of the server."""

    def find(self, key: bytes, found: Found) -> None:
        """Look for an entry elsewhere, if the cache outlives the server: call `found`, at once or later."""

    def insert(self, key: bytes, entry: Entry) -> None:
        """Keep an entry that is not larger than `largest`, and has bytes of its own."""

    def forget(self, keys: set[bytes]) -> None:
        """The version whose keys these are is gone, and its entries with it."""

    async def close(self) -> None:
        """Give everything back."""
