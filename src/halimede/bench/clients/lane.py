"""A connection with one request under way at a time, and what is noted of each request."""

import time
from abc import abstractmethod
from array import array
from asyncio import Protocol, Transport
from collections.abc import Callable
from typing import cast

COLUMNS = 6
"""Numbers of a record: when it was due, sent, first and fully answered (ns), how many responses, and its error."""

now = time.monotonic_ns
"""One clock for all processes of a machine."""


class Recorder:
    """Records of what was answered since they were last taken.

    Attributes:
        records: six numbers for each request: see `COLUMNS`.
        gaps: two numbers for each further response of a request: when it came, and how long after the one before.
        errors: texts of errors and their numbers, from 1 on.
    """

    def __init__(self) -> None:
        self.records = array("q")
        self.gaps = array("q")
        self.errors: dict[str, int] = {}

    def error_number(self, text: str) -> int:
        """The number of a text; so many different ones are kept apart."""
        if text not in self.errors and len(self.errors) >= _DISTINCT_ERRORS:
            text = "other errors"
        return self.errors.setdefault(text, len(self.errors) + 1)

    def take(self) -> tuple[bytes, bytes]:
        """Records and gaps as bytes; they are forgotten here."""
        taken = self.records.tobytes(), self.gaps.tobytes()
        self.records, self.gaps = array("q"), array("q")
        return taken


_DISTINCT_ERRORS = 20


class Lane(Protocol):
    """A connection with at most one request under way.

    Attributes:
        busy: a request is under way.
        usable: the connection is open.
        ready: called once it is usable.
        idle: called when a request is done, well or not.
        closed: called when the connection has ended.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.busy = False
        self.usable = False
        self.ready: Callable[[], None] = _nothing
        self.idle: Callable[[Lane], None] = _nothing_with
        self.closed: Callable[[Lane], None] = _nothing_with
        self._due = self._sent = self._first = self._last = 0
        self._responses = 0
        self._transport: Transport

    def connection_made(self, transport: object) -> None:
        """Begin: the connection is open."""
        self._transport = cast("Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: a request that is under way has failed."""
        self.usable = False
        if self.busy:
            self.finish(f"the connection was closed{f': {exc}' if exc else ''}")
        self.closed(self)

    def send(self, message: bytes, due: int = 0) -> None:
        """Send a request that was due at that time (ns), or is due now."""
        self.busy = True
        self._responses = 0
        self._sent = now()
        self._due = due or self._sent
        self.write(message)

    @abstractmethod
    def write(self, message: bytes) -> None:
        """Write the request to the connection."""

    def response(self) -> None:
        """Note that a response has come."""
        at = now()
        if self._responses:
            self.recorder.gaps.extend((at, at - self._last))
        else:
            self._first = at
        self._last = at
        self._responses += 1

    def finish(self, error: str = "") -> None:
        """Note that the request is done."""
        at = now()
        self.busy = False
        recorder = self.recorder
        recorder.records.extend(
            (
                self._due,
                self._sent,
                self._first if self._responses else at,
                at,
                self._responses,
                recorder.error_number(error) if error else 0,
            )
        )
        self.idle(self)

    def overdue(self, before: int) -> bool:
        """Whether a request is under way that was sent before that time."""
        return self.busy and self._sent < before

    def abort(self) -> None:
        """Close the connection now."""
        if hasattr(self, "_transport"):
            self._transport.abort()


def _nothing() -> None:
    return


def _nothing_with(_lane: Lane) -> None:
    return
