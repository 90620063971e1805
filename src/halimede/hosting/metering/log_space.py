"""What logs take on disk is bounded: the oldest lines of a log go, and the oldest logs of instances that are gone.

An instance writes to its log itself, and goes on if the host is killed; nothing is renamed or copied under its hands.
The beginning of a log is punched out instead (`fallocate`, Linux): it takes no room any more, and all other bytes keep
their positions, which tokens and times are about. What was punched out reads as zeros.
"""

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.holes import punch
from halimede.hosting.metering.log_times import forget_times, times_file
from halimede.hosting.substrates.base import containers_file

logger = logging.getLogger("halimede")

_PART = 4
"""A log that is too long loses such a part of what it may take."""

_TAIL_BYTES = 1 << 20
"""So much stays of a log that is too long where the file system cannot punch holes."""

_FRESH_S = 60.0
"""A log that was written to lately is not removed: its instance may be starting."""

_LINE_BYTES = 1 << 18
_BLOCK_BYTES = 4096
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What logs may take on disk.

    Attributes:
        instance_bytes: one log; its oldest lines go when it takes more.
        total_bytes: all logs together; those of instances that are gone go when they take more, the oldest first.
    """

    instance_bytes: int = 100 * _MIB
    total_bytes: int = 10_240 * _MIB


def first_position(log: Path) -> int:
    """Where the first line begins that is still there; the length of the log if none is.

    Raises:
        OSError: there is no log.
    """
    with log.open("rb") as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size

        def block(number: int) -> bytes:
            return os.pread(descriptor, _BLOCK_BYTES, number * _BLOCK_BYTES)

        def is_there(number: int) -> bool:
            return bool(block(number).lstrip(b"\0"))

        first = 0 if is_there(0) else bisect_left(range(-(-size // _BLOCK_BYTES)), True, key=is_there)
        found = block(first)  # of a log that may have grown meanwhile
        return first * _BLOCK_BYTES + len(found) - len(found.lstrip(b"\0"))


def bound(logs: Iterable[Path], limit: int) -> None:
    """Let the oldest lines go of those of the logs that take more than `limit` bytes. Blocks for a moment."""
    for log in logs:
        with suppress(OSError):  # a log that is not there
            if log.stat().st_blocks * 512 > limit:
                _shorten(log, limit - limit // _PART)


def _shorten(log: Path, kept: int) -> None:
    """Let no more than the last `kept` bytes of a log take room, from the beginning of a line on."""
    with log.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        begin = _line_after(file.fileno(), max(0, size - kept))
        if not punch(file.fileno(), begin):
            begin = _line_after(file.fileno(), max(0, size - min(kept, _TAIL_BYTES)))
            _write_anew(file.fileno(), begin)
    forget_times(log, begin)


def _line_after(descriptor: int, position: int) -> int:
    """Where the next line begins; the position itself if that line is longer than an event."""
    end = os.pread(descriptor, _LINE_BYTES, position).find(b"\n") + 1
    return position + end


def _write_anew(descriptor: int, begin: int) -> None:
    """Make a log of the same length of which only the end takes room.

    Lines that are written in this moment may be lost: whoever writes appends, to a file that is empty for a moment.
    """
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, size - begin, begin)
    os.ftruncate(descriptor, 0)
    os.ftruncate(descriptor, size)
    os.pwrite(descriptor, tail, begin)


def remove_oldest(directory: Path, limit: int, spare: Collection[Path] = ()) -> None:
    """Remove logs until all below a directory take no more than `limit` bytes. Blocks.

    Args:
        directory: where they are, as ``ACCOUNT/REGION/ENDPOINT/VARIANT/INSTANCE.log``.
        limit: for all together.
        spare: logs of instances that run; those to which something was written in the last minute stay too.
    """
    logs = []
    total = 0
    for log in directory.glob("*/*/*/*/*.log"):
        with suppress(OSError):
            found = log.stat()
            taken = found.st_blocks * 512
            with suppress(OSError):
                taken += times_file(log).stat().st_blocks * 512
            total += taken
            logs.append((found.st_mtime, log, taken))
    for written, log, taken in sorted(logs):
        if total <= limit:
            return
        if log not in spare and time.time() - written > _FRESH_S:
            logger.info("logs take %d MiB: %s is removed", total // _MIB, log)
            with suppress(OSError):
                log.unlink()
                times_file(log).unlink(missing_ok=True)
                containers_file(log).unlink(missing_ok=True)
                total -= taken


def remove_empty(directory: Path) -> None:
    """Remove directories in which there are no logs any more; nothing may be starting. Blocks."""
    for pattern in ("*/*/*/*", "*/*/*", "*/*", "*"):
        for each in directory.glob(pattern):
            with suppress(OSError):  # it is not empty
                each.rmdir()
