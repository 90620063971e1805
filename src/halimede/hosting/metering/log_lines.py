"""Lines of one log: read from a position on, or back from one."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.metering.log_space import first_position
from halimede.hosting.metering.log_times import LineTimes

_LINE_BYTES = 1 << 18
"""A longer line is cut into events of this size (CloudWatch's limit)."""

_FIRST_BLOCK_BYTES, _BLOCK_BYTES = 1 << 16, 1 << 20
"""So much of a log is read at once on the way back: little at first, as most want its last lines only."""

_QUIET_S = 3.0
"""The last line counts without its end when nothing has been written for so long."""

ALL_TIME = (0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Event:
    """One line.

    Attributes:
        position: where it begins in its log.
        end: where the next one begins.
        when: in milliseconds since 1970.
        text: without the line end.
    """

    position: int
    end: int
    when: int
    text: str


def lines(
    log: Path, position: int = 0, window: tuple[int, int] = ALL_TIME, stop: int | None = None
) -> Iterator[Event]:
    """The lines of a log, as far as they are still there.

    Args:
        log: the log.
        position: where the first one begins; if that is gone, the first one is the oldest.
        window: milliseconds since 1970; their times are not before its beginning, and before its end.
        stop: where the last one ends; None for the end of the log, as far as its lines are whole.
    """
    times = LineTimes(log)
    with suppress(FileNotFoundError), log.open("rb") as file:
        position = max(position, first_position(log))
        file.seek(position)
        while data := file.readline(_LINE_BYTES if stop is None else min(_LINE_BYTES, stop - position)):
            if b"\0" in data and position < (first := first_position(log)):  # it has gone while it was read
                position = file.seek(first)
                continue
            end = position + len(data)
            if not _is_whole(data) and end != stop and _is_growing(log):
                return  # the rest of it is still to be written
            when = times.at(end)
            if when >= window[1]:
                return
            if when >= window[0]:
                yield Event(position, end, when, data.rstrip(b"\r\n").decode(errors="replace"))
            position = end


def lines_before(log: Path, end: int, window: tuple[int, int] = ALL_TIME) -> Iterator[Event]:
    """The lines before a position, where one ends, whose time is in the window; the last one first."""
    try:
        first = first_position(log)
    except FileNotFoundError:
        return
    block = _FIRST_BLOCK_BYTES
    while end > first:
        begin = max(first, _beginning(log, max(0, end - block)))
        block = min(block * 4, _BLOCK_BYTES)
        if begin >= end:
            continue  # the line is longer than the block
        for event in reversed(list(lines(log, begin, (0, window[1]), end))):
            if event.when < window[0]:
                return
            yield event
        end = begin


def end_of_lines(log: Path) -> int:
    """Where the last line of a log ends: not the one that is being written; 0 if the log is gone."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(max(0, size - _LINE_BYTES))
        data = file.read(size - begin)
        rest = len(data) - (data.rfind(b"\n") + 1)
        return size - rest if rest < _LINE_BYTES and _is_growing(log) else size
    return 0


def size_of(log: Path) -> int:
    """How long a log is, with what is not there any more; 0 if it is gone."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def stored_bytes(log: Path) -> int:
    """How many bytes of a log are there; 0 if it is gone."""
    try:
        return log.stat().st_size - first_position(log)
    except OSError:
        return 0


def _is_whole(line: bytes) -> bool:
    return line.endswith(b"\n") or len(line) == _LINE_BYTES


def _is_growing(log: Path) -> bool:
    return time.time() - log.stat().st_mtime < _QUIET_S


def _beginning(log: Path, position: int) -> int:
    """Where the first line begins that begins at the position or after it."""
    if not position:
        return 0
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(position - 1)
        return position - 1 + len(file.readline(_LINE_BYTES))
    return position
