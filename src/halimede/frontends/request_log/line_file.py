"""The end of the access log: standard error, or a file that may be rotated."""

import os
import sys
from pathlib import Path
from typing import Final

_STANDARD_ERROR: Final = 2


def open_file(path: Path) -> int:
    """A descriptor that appends to the file, which is created if need be.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


class LineFile:
    """Appends to a file, or to standard error. A file that was moved or deleted is created anew.

    Args:
        path: the file; None for standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = _STANDARD_ERROR if path is None else open_file(path)
        self._failing = False

    def write(self, lines: bytes) -> None:
        """Write whole lines. That it fails is told once on standard error, until it goes well again."""
        try:
            if self._path is not None:
                self._reopen_if_moved(self._path)
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
            self._failing = False
        except OSError as error:
            if not self._failing and self._path is not None:
                sys.stderr.write(f"access log: cannot write to {self._path}: {error.strerror or error}\n")
                sys.stderr.flush()
            self._failing = True

    def _reopen_if_moved(self, path: Path) -> None:
        opened = os.fstat(self._descriptor)
        try:
            there = path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            descriptor = open_file(path)
            os.close(self._descriptor)
            self._descriptor = descriptor
