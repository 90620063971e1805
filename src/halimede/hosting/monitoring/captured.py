"""Captured files, one after the other, as a stream of lines between processes.

A line that begins with NUL says which file follows, or that there are no more; no record's line does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from halimede.hosting.capture.records import CaptureRecord, read_records

_MARK: Final = b"\0"
END: Final = _MARK + b"\n"
"""After the last file."""

_MAX_EXAMPLES = 20


class CutOffError(Exception):
    """The stream ended before its end."""


def head_of(name: str) -> bytes:
    """What is written before a file; the file may end without the end of a line."""
    return b"\n" + _MARK + name.encode() + b"\n"


@dataclass(slots=True)
class Captured:
    """The records of a stream that are of a window.

    Attributes:
        begin, end: the window; records of the end are of the next one. None for no bound.
        files: how many files were read.
        unreadable: how many lines are no records.
        examples: what is wrong with the first of those.
        outside: how many records are of other times.
    """

    begin: datetime | None = None
    end: datetime | None = None
    files: int = 0
    unreadable: int = 0
    examples: list[str] = field(default_factory=list)
    outside: int = 0

    def records(self, lines: Iterable[bytes]) -> Iterator[CaptureRecord]:
        """The records.

        Raises:
            CutOffError: the stream ends before its end.
        """
        name, number, problems = "", 0, list[str]()
        for line in lines:
            if line == END:
                return
            if line.startswith(_MARK):
                name, number = line[1:].decode().rstrip("\n"), 0
                self.files += 1
                continue
            number += 1
            problems.clear()
            for record in read_records([line], lambda _, why: problems.append(why)):
                if self._is_within(record):
                    yield record
                else:
                    self.outside += 1
            if problems:
                self.unreadable += 1
                if len(self.examples) < _MAX_EXAMPLES:
                    self.examples.append(f"{name}, line {number}: {problems[0]}")
        raise CutOffError

    def _is_within(self, record: CaptureRecord) -> bool:
        time = record.time if record.time.tzinfo else record.time.replace(tzinfo=UTC)
        return (self.begin is None or time >= self.begin) and (self.end is None or time < self.end)
