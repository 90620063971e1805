"""In a front end: what answers its clients, by asking the engine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from halimede.core.errors import Code, UnavailableError
from halimede.frontends.grpc.transport.call import Call, Method, StreamMethod, UnaryMethod
from halimede.frontends.grpc.transport.responses import Status
from halimede.frontends.http.answers import respond_error
from halimede.frontends.http.transport.exchange import Exchange, Handler, Headers
from halimede.frontends.relay import wire
from halimede.frontends.relay.link import Link, Payload
from halimede.frontends.relay.windows import TOLD_BYTES

MethodRow = tuple[str, bool, int, str]
"""Of a method of gRPC: its full path, whether it is unary, how its answers are compressed, the group that it is in."""

_ENGINE_GONE: Final = "the server has ended"
_NO_MEMORY: Final = "no shared memory for the request: {}"


class Relay:
    """Asks the engine for the answers. Lives on the event loop."""

    def __init__(self, link: Link, numbers: Iterator[int]) -> None:
        """Nothing has been asked; `numbers` are those of calls to the engine's process."""
        self._link = link
        self._numbers = numbers
        self._exchanges: dict[int, Exchange] = {}
        self._calls: dict[int, Call] = {}
        self._untold: dict[int, int] = {}  # bytes that clients have taken of answers that come in pieces

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the engine."""
        return {
            wire.REPLY: self._reply,
            wire.STREAM: self._stream,
            wire.PIECE: self._piece,
            wire.END: self._end,
            wire.ABORT: self._abort,
            wire.RESPONSE: self._response,
            wire.SEND: self._send,
            wire.FINISH: self._finish,
            wire.PAUSE: self._pause,
            wire.RESUME: self._resume,
        }

    # HTTP

    def http(self, service: str) -> Handler:
        """What answers the exchanges of an endpoint."""
        return partial(self._ask, service)

    def _ask(self, service: str, exchange: Exchange) -> None:
        number = next(self._numbers)
        link = self._link
        try:
            body = link.payload(exchange.body)
        except MemoryError as error:
            respond_error(exchange, UnavailableError(_NO_MEMORY.format(error)))
            return
        self._exchanges[number] = exchange
        exchange.relayed = True
        exchange.on_disconnect = partial(self._exchange_gone, number)
        query = exchange.query
        link.post(
            wire.EXCHANGE,
            number,
            service,
            exchange.method,
            f"{exchange.path}?{query}" if query else exchange.path,
            list(exchange.sent_headers),
            body,
            exchange.peer,
            exchange.client,
            exchange.body_began_ns,
        )

    def _exchange_gone(self, number: int) -> None:
        if self._exchanges.pop(number, None) is not None:
            self._untold.pop(number, None)
            self._link.post(wire.GONE, number, Status.CANCELLED.value)

    def _reply(
        self,
        number: int,
        route: str,
        status: int,
        payloads: Sequence[Payload],
        media_type: str,
        headers: Headers,
    ) -> None:
        parts = [self._link.bytes_of(payload) for payload in payloads]
        exchange = self._exchanges.pop(number, None)
        if exchange is not None:
            exchange.route = route
            exchange.respond(status, parts, media_type, tuple(headers))

    def _stream(self, number: int, route: str, status: int, media_type: str) -> None:
        exchange = self._exchanges.get(number)
        if exchange is not None:
            exchange.route = route
            stream = exchange.stream(status, media_type)
            stream.on_room = partial(self._tell, number)

    def _piece(self, number: int, payload: Payload) -> None:
        data = self._link.bytes_of(payload)
        exchange = self._exchanges.get(number)
        if exchange is None:
            return
        stream = exchange.streamed
        assert stream is not None
        stream.write(bytes(data))
        self._took(number, len(data), tells=not stream.full)

    def _end(self, number: int) -> None:
        self._untold.pop(number, None)
        exchange = self._exchanges.pop(number, None)
        if exchange is not None:
            exchange.on_disconnect = None
            assert exchange.streamed is not None
            exchange.streamed.end()

    def _abort(self, number: int) -> None:
        self._untold.pop(number, None)
        exchange = self._exchanges.pop(number, None)
        if exchange is not None and exchange.streamed is not None:
            exchange.streamed.abort()

    # answers in pieces

    def _took(self, number: int, size: int, *, tells: bool) -> None:
        """The connection of a client has so many more bytes; the engine may be told so, unless it is behind."""
        untold = self._untold[number] = self._untold.get(number, 0) + size
        if tells and untold >= TOLD_BYTES:
            self._tell(number)

    def _tell(self, number: int) -> None:
        """Tell the engine what the connection of a client has taken."""
        untold = self._untold.pop(number, 0)
        if untold:
            self._link.post(wire.TAKEN, number, untold)

    # gRPC

    def methods(self, rows: Iterable[MethodRow]) -> dict[str, Method]:
        """What answers calls, by their full paths."""
        return {
            path: UnaryMethod(self._call, compression, group)
            if unary
            else StreamMethod(self._begin_stream, compression, group)
            for path, unary, compression, group in rows
        }

    def _call(self, call: Call, message: memoryview) -> None:
        try:
            payload = self._link.payload(message)
        except MemoryError as error:
            call.finish(Code.UNAVAILABLE.grpc_status, _NO_MEMORY.format(error))
            return
        number = self._opened(call)
        self._link.post(
            wire.CALL, number, call.path, dict(call.metadata), payload, call.peer, call.connection.client
        )

    def _begin_stream(self, call: Call) -> None:
        number = self._opened(call)
        call.on_message = partial(self._message, number, call)
        call.on_half_close = partial(self._link.post, wire.HALF_CLOSE, number)
        call.on_writable = partial(self._tell, number)
        self._link.post(
            wire.STREAM_CALL, number, call.path, dict(call.metadata), call.peer, call.connection.client
        )

    def _opened(self, call: Call) -> int:
        number = next(self._numbers)
        self._calls[number] = call
        call.relayed = True
        call.on_cancel = partial(self._call_gone, number, call)
        return number

    def _message(self, number: int, call: Call, message: memoryview) -> None:
        try:
            payload = self._link.payload(message)
        except MemoryError as error:
            self._call_gone(number, call)
            call.finish(Code.UNAVAILABLE.grpc_status, _NO_MEMORY.format(error))
            return
        self._link.post(wire.MESSAGE, number, payload)
        if self._link.congested:
            call.pause()

    def _call_gone(self, number: int, call: Call) -> None:
        if self._calls.pop(number, None) is not None:
            self._untold.pop(number, None)
            self._link.post(wire.GONE, number, int(call.status))

    def _response(self, number: int, payloads: Sequence[Payload]) -> None:
        parts = [self._link.bytes_of(payload) for payload in payloads]
        call = self._calls.pop(number, None)
        if call is not None:
            call.on_cancel = None
            call.reply(parts)

    def _send(self, number: int, payloads: Sequence[Payload]) -> None:
        parts = [self._link.bytes_of(payload) for payload in payloads]
        call = self._calls.get(number)
        if call is not None:
            size = sum(map(len, parts))
            call.send(parts)
            self._took(number, size, tells=call.writable)

    def _finish(self, number: int, status: int, message: str) -> None:
        self._untold.pop(number, None)
        call = self._calls.pop(number, None)
        if call is not None:
            call.on_cancel = None
            call.finish(status, message)

    def _pause(self, number: int) -> None:
        call = self._calls.get(number)
        if call is not None:
            call.pause()

    def _resume(self, number: int) -> None:
        call = self._calls.get(number)
        if call is not None:
            call.resume()

    def give_up(self) -> None:
        """The engine's process is gone: tell those who wait."""
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            if exchange.streamed is not None:
                exchange.streamed.abort()
            else:
                respond_error(exchange, UnavailableError(_ENGINE_GONE))
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.finish(Code.UNAVAILABLE.grpc_status, _ENGINE_GONE)
