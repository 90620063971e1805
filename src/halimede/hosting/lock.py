"""A directory belongs to one host at a time."""

import fcntl
import os
from pathlib import Path


class LockError(Exception):
    """The directory cannot be had; the text says why."""


class DirectoryLock:
    """Holds a directory until `release`, or until the process is gone, however that ends."""

    def __init__(self, directory: Path) -> None:
        """Hold the directory, which is made if it is not there.

        Raises:
            LockError: another host has it, or it cannot be written.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            msg = f"cannot use the directory '{directory}': {error.strerror}; choose another with --directory"
            raise LockError(msg) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            os.close(self._file)
            msg = f"another host has the directory '{directory}'"
            whose = f" (process {holder})" if holder else ""
            raise LockError(f"{msg}{whose}; stop it, or choose another with --directory") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Leave the directory to others."""
        os.close(self._file)
