"""Directories in memory, for tests whose databases would otherwise wait for the disk with each write."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ENOUGH = 1 << 30
"""Bytes that have to be free there: containers often have a small one."""


def directory_in_memory() -> str | None:
    """Where to make temporary directories: in memory, if there is enough; None for the usual place."""
    try:
        room = os.statvfs(_MEMORY)
    except OSError:
        return None
    enough = room.f_bavail * room.f_frsize >= _ENOUGH and os.access(_MEMORY, os.W_OK)
    return str(_MEMORY) if enough else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In place of pytest's: a directory in memory that is gone after the test.

    Instances of real hosts have a `/dev/shm` of their own, so what they run has to be elsewhere.
    """
    parent = Path(tempfile.mkdtemp(prefix="halimede-test-", dir=directory_in_memory()))
    path = parent / "test"  # some put files beside it
    path.mkdir()
    yield path
    shutil.rmtree(parent)
