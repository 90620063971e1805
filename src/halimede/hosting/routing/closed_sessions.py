"""The sessions that their containers have closed, until they would have expired."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path

logger = logging.getLogger("halimede")

_MOST = 100_000
"""So many are remembered; with one more, a tenth is forgotten: what was closed first."""


class ClosedSessions:
    """What clients call each session that is closed, and when it would have ended. Lives on the event loop.

    With a file, it is also known to the next process: a line is written for each, and no line is waited for.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """None, and no file before `open`.

        Args:
            now: the time, in seconds since 1970.
        """
        self._now = now
        self._ends: dict[str, int] = {}
        self._path: Path | None = None
        self._file: FileIO | None = None
        self._lines = 0

    def __contains__(self, token: str) -> bool:
        return token in self._ends

    def all(self) -> Mapping[str, int]:
        """What clients call them, with their ends in seconds since 1970."""
        return dict(self._ends)

    def open(self, path: Path) -> None:
        """Have what a file holds, and keep in it what comes, as far as it can be read and written. Blocks."""
        self._path = path
        try:
            text = path.read_text(errors="replace") if path.exists() else ""
            for line in text.splitlines():
                end, _, token = line.partition(" ")
                with suppress(ValueError):  # the last line of a process that was killed may be cut off
                    self._ends[token] = int(end)
            self._tidy(len(self._ends) - _MOST)
            self._write_all()
        except OSError as error:
            self._fail(error)

    def add(self, token: str, expires: int) -> None:
        """A session is closed that would have ended at that time."""
        if len(self._ends) >= _MOST:
            self._tidy(_MOST // 10)
        self._ends[token] = expires
        if self._file is None:
            return
        try:
            if self._lines >= 2 * _MOST:
                self._write_all()
            else:
                self._file.write(_line(token, expires))
                self._lines += 1
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        logger.error(
            "%s: %s; sessions that are closed from now on are not known to be after a restart",
            self._path,
            error.strerror,
        )
        self.close()

    def _tidy(self, count: int) -> None:
        """Forget what has expired; if that is not enough, so many that were closed first."""
        now = self._now()
        self._ends = {token: end for token, end in self._ends.items() if end > now}
        if len(self._ends) >= _MOST:
            for token in list(self._ends)[: max(count, 0)]:
                del self._ends[token]

    def _write_all(self) -> None:
        """Have those in the file that there are, and no others."""
        assert self._path is not None
        self.close()
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_bytes(b"".join(_line(token, end) for token, end in self._ends.items()))
        new.chmod(0o600)
        new.replace(self._path)
        self._file = FileIO(self._path, "ab")
        self._lines = len(self._ends)

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(token: str, end: int) -> bytes:
    return f"{end} {token}\n".encode()
