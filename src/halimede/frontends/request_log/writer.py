"""Writes lines to standard error or to a file that may be rotated, on a thread of its own."""

import logging
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

logger = logging.getLogger("halimede")

_MOST_WAITING: Final = 8 << 20
"""Bytes that may wait to be written; more are dropped, as memory must not grow while a disk or a reader is slow."""

_STANDARD_ERROR: Final = 2


class LineWriter:
    """Appends to a file, or to standard error. A file that was moved or deleted is created anew.

    Its thread is started by the first write.

    Args:
        path: the file; None for standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = _STANDARD_ERROR if path is None else _open(path)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._ending = False
        self._failing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, lines: bytes) -> None:
        """Write whole lines, soon."""
        with self._changed:
            if self._waiting_bytes + len(lines) > _MOST_WAITING:
                self._dropped += lines.count(b"\n")
                return
            self._waiting.append(lines)
            self._waiting_bytes += len(lines)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Write what waits, as long as that takes no longer than `timeout_s`."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    break
                lines = b"".join(self._waiting)
                dropped = self._dropped
                self._waiting.clear()
                self._waiting_bytes = self._dropped = 0
            if dropped:
                logger.warning(
                    "access log: %d lines were dropped, as they are not written fast enough", dropped
                )
            self._write(lines)
        if self._path is not None:
            os.close(self._descriptor)

    def _write(self, lines: bytes) -> None:
        try:
            if self._path is not None:
                self._reopen_if_moved(self._path)
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
            self._failing = False
        except BrokenPipeError:  # nobody reads standard error any more
            pass
        except OSError as error:
            if not self._failing:
                self._failing = True
                where = self._path or "standard error"
                logger.error("access log: cannot write to %s: %s", where, error.strerror or error)

    def _reopen_if_moved(self, path: Path) -> None:
        opened = os.fstat(self._descriptor)
        try:
            there = path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            descriptor = _open(path)
            os.close(self._descriptor)
            self._descriptor = descriptor


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
