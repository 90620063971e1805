"""Exchanges whose responses say how long each stage took; made in place of others where clients may know."""

from collections.abc import Sequence
from typing import Final

from halimede.core.clock import MILLISECOND
from halimede.core.tensors import Buffer
from halimede.frontends.http.logged import LoggedExchange
from halimede.frontends.http.transport.exchange import Connection, Headers
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import EntryLog
from halimede.http1.head import Head

_END: Final = b"\r\n"
_HEADER: Final = "Server-Timing"


class TimedExchange(LoggedExchange):
    """An exchange whose response has a header Server-Timing, if a model ran or was to run for it.

    A response that is streamed has none: its head is sent before the times are known.
    """

    __slots__ = ()

    def __init__(
        self, log: EntryLog | None, protocol: str, connection: Connection, head: Head, body: memoryview
    ) -> None:
        LoggedExchange.__init__(self, log or _NoLog(), protocol, connection, head, body)

    def respond(
        self,
        status: int,
        parts: Sequence[Buffer] = (),
        content_type: str = "application/json",
        headers: Headers = (),
    ) -> None:
        """Send the response, with its times."""
        if not self.closed:
            self._entry.end(status)
        LoggedExchange.respond(self, status, parts, content_type, headers)

    def response(self, last: bool) -> tuple[Sequence[Buffer], int]:
        """What to write, and its size; `last` if the connection ends with it."""
        (head, *body), size = LoggedExchange.response(self, last)
        if not self._entry.model or self.relayed:  # the other process has added it
            return (head, *body), size
        line = f"{_HEADER}: {server_timing(self._entry)}\r\n".encode("ascii")
        return (bytes(head)[: -len(_END)] + line + _END, *body), size + len(line)

    @property
    def reply_headers(self) -> Headers:
        """The further headers of its reply."""
        headers = super().reply_headers
        return (*headers, (_HEADER, server_timing(self._entry))) if self._entry.model else headers


def server_timing(entry: Entry) -> str:
    """The header's value: milliseconds of each stage that is known, and of them all."""
    stages = (
        ("queue", entry.queue_ns),
        ("input", entry.input_ns),
        ("infer", entry.infer_ns),
        ("output", entry.output_ns),
        ("total", entry.total_ns),
    )
    return ", ".join(f"{name};dur={ns / MILLISECOND:.3f}" for name, ns in stages if ns >= 0)


class _NoLog:
    """Where requests are not logged."""

    def add(self, entry: Entry) -> None:
        """Forget the request."""
