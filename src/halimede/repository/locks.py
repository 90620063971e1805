"""Locked directories: a lock goes with the process that holds it, however that ends."""

import errno
import fcntl
import os
from pathlib import Path


def lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock what is at a path, a file or a directory: a descriptor that holds the lock until it is closed.

    None if another holds it, or has just put something else at the path.

    Raises:
        FileNotFoundError: there is nothing.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        here, there = os.fstat(descriptor), path.lstat()
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        return descriptor
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock on what is at a path."""
    try:
        descriptor = lock(path, shared=True)
    except OSError as error:
        return error.errno not in {errno.ENOENT, errno.ENOTDIR}
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
