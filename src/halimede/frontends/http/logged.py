"""Exchanges that the log of requests hears of; made in place of plain ones where there is such a log."""

from collections.abc import Sequence

from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer
from halimede.frontends.http.transport.exchange import Connection, Exchange, Headers
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import EntryLog
from halimede.frontends.traffic import CLIENT_GONE
from halimede.http1.head import Head


class LoggedExchange(Exchange):
    """An exchange that is logged when its response is handed to the socket."""

    __slots__ = ("_entry", "_log")

    def __init__(
        self, log: EntryLog, protocol: str, connection: Connection, head: Head, body: memoryview
    ) -> None:
        Exchange.__init__(self, connection, head, body)  # each `super()` of a request would cost 0.1 µs
        self._log = log
        self._entry = Entry(
            protocol,
            connection.client,
            head.method,
            head.path,
            head.headers.get("traceparent"),
            len(body),
        )

    def begin(self, request: InferRequest) -> None:
        """The engine is about to run `request` for this exchange."""
        Exchange.begin(self, request)
        self._entry.begin(request, request.model_version)

    def respond(
        self,
        status: int,
        parts: Sequence[Buffer] = (),
        content_type: str = "application/json",
        headers: Headers = (),
    ) -> None:
        """Send the response, then log it."""
        if self.closed or self.streamed is not None:
            return
        Exchange.respond(self, status, parts, content_type, headers)
        if self.relayed:
            return
        entry = self._entry
        assert self.reply is not None
        status, parts = self.reply[:2]  # which may be a refusal by now
        entry.bytes_out = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        entry.end(status)
        self._log.add(entry)

    def stream_sent(self) -> None:
        """The response that `stream` began is all written."""
        super().stream_sent()
        assert self.streamed is not None
        self._entry.bytes_out = self.streamed.written
        self._end(self.streamed.status)

    def lost(self) -> None:
        """The connection is gone before the response was written."""
        if not self.closed:
            if self.streamed is not None:
                self._entry.bytes_out = self.streamed.written
            self._end(CLIENT_GONE)
        super().lost()

    def _end(self, status: int) -> None:
        if self.relayed:
            return
        self._entry.end(status)
        self._log.add(self._entry)
