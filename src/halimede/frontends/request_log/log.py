"""Gathers what is known of requests, and logs it a batch at a time, off the requests' way.

Making a line takes 2 µs, so another process does it; a request's share of a pickled batch takes 0.3 µs.
"""

import asyncio
import logging
import pickle
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final, Protocol

from halimede.core.clock import MILLISECOND
from halimede.frontends.request_log.entry import Entry, slow_text
from halimede.frontends.request_log.writer import open_writer

logger = logging.getLogger("halimede")

_FLUSH_S: Final = 0.1
_BATCH: Final = 64
_CLOSE_S: Final = 2.0


class EntryLog(Protocol):
    """What hears of requests."""

    def add(self, entry: Entry) -> None:
        """A request has ended."""


class RequestLog:
    """The access log, and the log of slow requests. Lives on the event loop.

    Args:
        form: of lines of the access log, text or json; none for no access log.
        path: the file of the access log; None for standard error.
        slow_ms: requests that took at least so long are logged with their stages; 0 for none.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, form: str, path: Path | None, slow_ms: int) -> None:
        self._writer = None if form == "none" else open_writer(form, path)
        self._slow_ns = slow_ms * MILLISECOND
        self._entries: list[Entry] = []
        self._batches: list[tuple[bytes, int]] = []  # the thread is woken only from time to time
        self._scheduled = False

    def add(self, entry: Entry) -> None:
        """Log a request that has ended, within a tenth of a second."""
        entries = self._entries
        entries.append(entry)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_on_time)
        elif len(entries) >= _BATCH:
            self._pack_entries()

    def _flush_on_time(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Log all that has ended."""
        self._pack_entries()
        if self._writer is not None:
            for batch, lines in self._batches:
                self._writer.write(batch, lines)
            self._batches.clear()

    def _pack_entries(self) -> None:
        entries, self._entries = self._entries, []
        if self._slow_ns:
            for entry in entries:
                if entry.total_ns >= self._slow_ns:
                    logger.warning("%s", slow_text(entry))
        if self._writer is not None and entries:
            wall_ns = time_ns() - monotonic_ns()
            batch = pickle.dumps((wall_ns, [entry.values() for entry in entries]), 5)
            self._batches.append((batch, len(entries)))

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        if self._writer is not None and not self._writer.close(_CLOSE_S):
            logger.warning("access log: the last lines are still being written")
