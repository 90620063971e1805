"""Directories for one server alone, which go with it: what a killed one has left goes when the next one comes.

A server holds a lock on each of its own as long as it lives, and so do the programs that fill it. The lock tells other
servers, and those that clean up temporary directories, that it is in use.
"""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_YOUNG_SECONDS = 60.0
"""How old a directory is for certain when its lock counts: it is made before it is locked."""


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """A directory for one server alone.

    Attributes:
        path: the directory.
        lock: a descriptor that holds its lock.
    """

    path: Path
    lock: int

    @classmethod
    def make(cls, parent: Path, prefix: str) -> "PrivateDirectory":
        """A new directory, after what killed servers have left beside it has been removed.

        Args:
            parent: the directory in which to make it.
            prefix: how the names begin of this one and of those that may be removed.

        Raises:
            OSError: it cannot be made.
        """
        remove_abandoned(parent, prefix)
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    def remove(self) -> None:
        """Delete it and what is in it; to be called once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the private directories of servers that were killed."""
    for path in parent.glob(prefix + "*"):
        with suppress(OSError):  # another user's, or in use
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(lock)
                # a young one may be about to be locked
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > _YOUNG_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
