"""Calls over gRPC of a front end's clients, in the engine's process."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from halimede.core.tensors import Buffer
from halimede.frontends.grpc.logged import LoggedCall
from halimede.frontends.grpc.transport.call import (
    Call,
    Metadata,
    Method,
    RequestHead,
    StreamMethod,
    UnaryMethod,
)
from halimede.frontends.grpc.transport.responses import Status
from halimede.frontends.relay import wire
from halimede.frontends.relay.link import Link, Payload
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.relay.windows import Window
from halimede.frontends.request_log.log import RequestLog

_NO_DEADLINE: Final = -1


class RelayedCalls:
    """Those of one front end that are under way. Lives on the event loop."""

    def __init__(
        self, link: Link, methods: Mapping[str, Method], log: RequestLog | None, traffic: RelayedTraffic
    ) -> None:
        """None yet.

        Args:
            link: the front end.
            methods: what answers calls, by their full paths.
            log: hears of each call; None for no such log.
            traffic: what passes through the endpoint.
        """
        self._traffic = traffic
        self._link = link
        self._methods = methods
        self._make_call = RelayedCall if log is None else partial(LoggedRelayedCall, log)
        self._open: dict[int, Call] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the front end."""
        return {
            wire.CALL: self._begin,
            wire.STREAM_CALL: self._begin_stream,
            wire.MESSAGE: self._message,
            wire.HALF_CLOSE: self._half_close,
        }

    def _make(self, number: int, path: str, metadata: Metadata, peer: str, client: str) -> Call:
        method = self._methods[path]
        unary = method.handler if isinstance(method, UnaryMethod) else None
        head = RequestHead(path, method, unary, metadata, _NO_DEADLINE, "", 0, b"")
        client_end = _Client(self, self._link, peer, client)
        call = self._make_call(client_end, client_end, number, head)  # type: ignore[arg-type]
        self._open[number] = call
        self._traffic.in_flight += 1
        return call

    def _begin(
        self, number: int, path: str, metadata: Metadata, message: Payload, peer: str, client: str
    ) -> None:
        call = self._make(number, path, metadata, peer, client)
        assert call.unary is not None
        call.unary(call, memoryview(self._link.bytes_of(message)))

    def _begin_stream(self, number: int, path: str, metadata: Metadata, peer: str, client: str) -> None:
        call = self._make(number, path, metadata, peer, client)
        method = self._methods[path]
        assert isinstance(method, StreamMethod)
        method.handler(call)

    def _message(self, number: int, message: Payload) -> None:
        view = memoryview(self._link.bytes_of(message))
        call = self._open.get(number)
        if call is not None and call.on_message is not None:
            call.on_message(view)

    def _half_close(self, number: int) -> None:
        call = self._open.get(number)
        if call is not None and call.on_half_close is not None:
            call.on_half_close()

    def over(self, call: Call) -> None:
        """A call has its answer."""
        if self._open.pop(call.stream, None) is not None:
            self._end(call)

    def _end(self, call: Call) -> None:
        call.closed = True
        self._traffic.in_flight -= 1
        self._traffic.counts[call.path, call.status] += 1
        call.end()

    def gone(self, number: int, status: int = Status.CANCELLED) -> bool:
        """The client of a call has given up, or is told that status; False if there is no such call."""
        call = self._open.pop(number, None)
        if call is None:
            return False
        on_cancel = call.on_cancel
        call.cancelled = True
        call.status = status
        self._end(call)
        if on_cancel is not None:
            on_cancel()
        return True

    def taken(self, number: int, size: int) -> bool:
        """The client of a call has taken so many bytes more; False if there is no such call."""
        call = self._open.get(number)
        if call is None:
            return False
        was_writable = call.writable
        call.sender.window.unread -= size  # type: ignore[attr-defined]
        if call.writable and not was_writable and call.on_writable is not None:
            call.on_writable()
        return True

    def room(self) -> None:
        """The front end takes items again."""
        for call in list(self._open.values()):
            if call.writable and call.on_writable is not None:
                call.on_writable()

    def close(self) -> None:
        """The front end is gone, and with it all of its clients."""
        for number in list(self._open):
            self.gone(number)


class _Client:
    """What a call takes for its connection and its sender."""

    stream_window = 0

    def __init__(self, calls: RelayedCalls, link: Link, peer: str, client: str) -> None:
        self.calls = calls
        self.link = link
        self.peer = peer
        self.client = client
        self.window = Window()

    @property
    def inbound(self) -> "_Client":
        """The receiving half."""
        return self


class RelayedCall(Call):
    """A call whose answer goes to a front end."""

    __slots__ = ()

    sender: Any

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent, rather than letting it queue."""
        return not (self.sender.window.is_full or self.sender.link.congested)

    def reply(self, parts: Sequence[Buffer]) -> None:
        """Send one message, and finish the call well."""
        if self.closed:
            return
        link = self.sender.link
        link.post(wire.RESPONSE, self.stream, link.payloads(parts))
        self.sender.calls.over(self)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message."""
        if not self.closed:
            link = self.sender.link
            self.sender.window.unread += sum(map(len, parts))
            link.post(wire.SEND, self.stream, link.payloads(parts))

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the call with a gRPC status and, for an error, its text."""
        if self.closed:
            return
        self.status = status
        self.sender.link.post(wire.FINISH, self.stream, status, message)
        self.sender.calls.over(self)

    def pause(self) -> None:
        """Hear of no more messages of the stream until `resume`."""
        self.sender.link.post(wire.PAUSE, self.stream)

    def resume(self) -> None:
        """Hear of messages again."""
        self.sender.link.post(wire.RESUME, self.stream)


class LoggedRelayedCall(LoggedCall, RelayedCall):
    """A call whose answer goes to a front end, and that is logged when it is over."""

    __slots__ = ()
