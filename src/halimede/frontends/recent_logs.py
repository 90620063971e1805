"""The latest records of the log, kept in memory for those who look at them in the console."""

import logging
from collections import deque
from itertools import count, takewhile
from typing import Any, Final, NamedTuple

KEPT: Final = 1000
"""Records that are kept; older ones are forgotten."""

LONGEST: Final = 8192
"""Characters of a message, or of a table or traceback that follows it, that are kept."""


class Record(NamedTuple):
    """One record of the log.

    Attributes:
        number: counts from 1, without gaps.
        time: when it was logged, in seconds since the epoch.
        level: such as ``INFO``.
        message: what it says.
        place: the file and line that logged it, as ``file.py:12``.
        model: the model that it is about, "" if its message alone tells.
        details: the table or traceback that follows it, "" for none.
    """

    number: int
    time: float
    level: str
    message: str
    place: str
    model: str
    details: str


class RecentLogs(logging.Handler):
    """Keeps the latest records. Safe from any thread."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._records: deque[Record] = deque(maxlen=kept)
        self._numbers = count(1)

    @property
    def last(self) -> int:
        """The number of the latest record, 0 for none."""
        return self._records[-1].number if self._records else 0

    def after(self, number: int) -> list[Record]:
        """The kept records with a higher number, in order."""
        newer = list(takewhile(lambda record: record.number > number, reversed(self._records.copy())))
        return newer[::-1]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        details: Any = getattr(record, "table", "")
        if record.exc_info and record.exc_info[0] is not None:
            details = f"{details}\n{_TRACEBACKS.formatException(record.exc_info)}".strip()
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # its arguments do not fit it, which those who write the log tell
            message = str(record.msg)
        self._records.append(
            Record(
                next(self._numbers),
                record.created,
                record.levelname,
                message[:LONGEST],
                f"{record.filename}:{record.lineno}",
                str(getattr(record, "model", "")),
                details[:LONGEST],
            )
        )


_TRACEBACKS: Final = logging.Formatter()
