"""Calls that the log of requests hears of; made in place of plain ones where there is such a log."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer
from halimede.frontends.grpc.transport.call import Call, Connection, RequestHead
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.responses import status_name
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import EntryLog


class LoggedCall(Call):
    """A call that is logged when it is over.

    A stream whose requests are logged one by one is itself logged only if it ends with an error.

    Attributes:
        entry: what is logged.
        logged_requests: requests of a stream that were logged.
    """

    __slots__ = ("_handler", "_log", "entry", "logged_requests")

    def __init__(
        self, log: EntryLog, connection: Connection, sender: Sender[Call], stream: int, head: RequestHead
    ) -> None:
        super().__init__(connection, sender, stream, head)
        self._log = log
        self._handler = head.unary
        self.logged_requests = 0
        name = head.path.rpartition("/")[2]
        self.entry = Entry("gRPC", connection.client, name, head.path, head.metadata.get("traceparent"), 0)
        if head.unary is not None:
            self.unary = _serve

    def begin(self, request: InferRequest, version: int) -> None:
        """This version of the request's model is about to run it for this call."""
        super().begin(request, version)
        self.entry.begin(request, version)

    def serve(self, message: memoryview) -> None:
        """The message of a unary call is complete."""
        self.entry.began_ns = monotonic_ns()
        self.entry.bytes_in = len(message)
        assert self._handler is not None, "only unary calls are served so"
        self._handler(self, message)

    def reply(self, parts: Sequence[Buffer]) -> None:
        """Send one message, and finish the call well."""
        self.entry.bytes_out = size_of(parts)
        super().reply(parts)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message."""
        if self.unary is None:  # that of a unary call is counted by `reply`
            self.entry.bytes_out += size_of(parts)
        super().send(parts)

    def end(self) -> None:
        """The call is over."""
        super().end()
        if not self.relayed and (self.status or not self.logged_requests):
            self.entry.end(status_name(self.status))
            self._log.add(self.entry)


def size_of(parts: Sequence[Buffer]) -> int:
    """Bytes of a message that is made of these buffers."""
    return sum(part.nbytes if type(part) is memoryview else len(part) for part in parts)


def _serve(call: Call, message: memoryview) -> None:
    assert isinstance(call, LoggedCall), "no other call has this handler"
    call.serve(message)
