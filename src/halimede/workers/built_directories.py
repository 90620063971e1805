"""Directories that are built once: whoever comes meanwhile waits, and what was left half done is built anew.

A directory is finished when it holds a marker. Builders exclude each other by a lock on a file beside it. They hold
it open, so a server that comes after one that was killed waits for what that one's builders still write.

It is built in its place, not renamed into it: environments are told where they lie, and don't bear to be moved.
"""

import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from halimede.core.errors import InternalError

logger = logging.getLogger("halimede")

_MARKER = ".halimede-complete"
_POLL_SECONDS = 0.1


def is_built(directory: Path) -> bool:
    """Whether the directory is there and finished."""
    return (directory / _MARKER).exists()


def place_in(cache: Path, kind: str, key: str) -> Path:
    """The place of a directory that stays in a cache directory, which is made, only for the server's user.

    Raises:
        InternalError: it cannot be made.
    """
    place = cache / kind / key
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(place, error) from None
    return place


def build_once(directory: Path, build: Callable[[int], None], closing: threading.Event) -> None:
    """See to it that the directory is built.

    Args:
        directory: what to build. It is made only for the user that the server runs as.
        build: fills the empty directory. It gets a descriptor that its programs are to hold open. When it raises,
            nothing of the directory is left.
        closing: set when the server stops.

    Raises:
        InternalError: the directory cannot be made, or the server is stopping.
    """
    if is_built(directory):
        return
    try:
        with _locked(directory, closing) as lock:
            if not is_built(directory):
                _build(directory, build, lock)
    except OSError as error:
        raise _cannot_make(directory, error) from None


def remove(directory: Path) -> None:
    """Remove a directory that nobody builds or uses."""
    shutil.rmtree(directory, ignore_errors=True)
    _lock_path(directory).unlink(missing_ok=True)


def _cannot_make(directory: Path, error: OSError) -> InternalError:
    return InternalError(f"cannot make the directory '{directory}': {error.strerror}")


def _build(directory: Path, build: Callable[[int], None], lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    try:
        build(lock)
        (directory / _MARKER).touch()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextmanager
def _locked(directory: Path, closing: threading.Event) -> Iterator[int]:
    lock = os.open(_lock_path(directory), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(lock):
            logger.info("waiting until '%s' has been built", directory)
            while not _try_lock(lock):
                if closing.wait(_POLL_SECONDS):
                    raise InternalError("the server is stopping")
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_path(directory: Path) -> Path:
    return directory.with_name(directory.name + ".lock")
