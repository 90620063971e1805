"""Gathers what is known of requests, and logs it a batch at a time, off the requests' way."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final

from halimede.core.clock import MILLISECOND
from halimede.frontends.request_log.entry import Entry, json_line, slow_text, text_line
from halimede.frontends.request_log.writer import LineWriter

logger = logging.getLogger("halimede")

_FLUSH_S: Final = 0.1
_BATCH: Final = 64
_CLOSE_S: Final = 1.0
_FORMATS: Final[dict[str, Callable[[Entry, int], str]]] = {"text": text_line, "json": json_line}


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
        self._format = _FORMATS.get(form)
        self._writer = None if self._format is None else LineWriter(path)
        self._slow_ns = slow_ms * MILLISECOND
        self._entries: list[Entry] = []
        self._lines: list[str] = []  # the thread is woken only from time to time
        self._scheduled = False

    def add(self, entry: Entry) -> None:
        """Log a request that has ended, within a tenth of a second."""
        entries = self._entries
        entries.append(entry)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_on_time)
        elif len(entries) >= _BATCH:
            self._format_entries()

    def _flush_on_time(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Log all that has ended."""
        self._format_entries()
        if self._writer is not None and self._lines:
            self._writer.write("".join(self._lines).encode("ascii"))
            self._lines.clear()

    def _format_entries(self) -> None:
        entries, self._entries = self._entries, []
        if self._slow_ns:
            for entry in entries:
                if entry.total_ns >= self._slow_ns:
                    logger.warning("%s", slow_text(entry))
        if self._format is not None:
            wall_ns = time_ns() - monotonic_ns()
            form = self._format
            self._lines.append("".join([form(entry, wall_ns) for entry in entries]))

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        if self._writer is not None:
            self._writer.close(_CLOSE_S)
