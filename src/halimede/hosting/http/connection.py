"""HTTP/1.1 on one connection of a client: one request at a time, whose body is handed on as it comes.

    data_received ─ head ─ handler(request) ─ request.take … ─ request.begin, write …, end ─ the next head

What has arrived and nobody has taken is a window at most: the connection is not read beyond it.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

import orjson

from halimede.core.memo import Memo
from halimede.core.origins import is_loopback
from halimede.hosting.http.request import Request
from halimede.hosting.http.settings import ConnectionLimits
from halimede.http1.chunks import LINES_AT_ONCE, Chunks
from halimede.http1.coarse_timer import CoarseTimer
from halimede.http1.head import MEMO_HEAD_BYTES, Head, Refusal, check_beginning, parse_head
from halimede.net.receiving import ReceiveBudget

WINDOW_BYTES = 262_144
"""So much of a body may wait for whoever is to take it."""

_HEADS = Memo(parse_head)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UNKNOWN_HEAD = Head("", "", {}, (), "1.1")

Handler = Callable[[Request], None]


class _State(Enum):
    """What the connection makes of the next bytes."""

    HEAD = "the head of a request"
    BODY = "the body of the request"
    DROPPED = "the body of a request that was answered before it was complete"
    ANSWERING = "nothing yet: the response is not complete"
    LINGERING = "nothing: they are thrown away, so that the client gets to read why"
    CLOSED = "nothing"


# an enumeration is asked for its members by a lookup that costs as much as a call
_HEAD, _BODY, _DROPPED, _ANSWERING, _LINGERING, _CLOSED = _State


class ClientConnection(asyncio.Protocol):
    """One connection.

    Attributes:
        client: the client's address.
        from_loopback: the client is on this machine.
        budget: the memory of bodies that are collected whole.
        write_paused: the client reads too slowly.
    """

    def __init__(
        self,
        handler: Handler,
        limits: ConnectionLimits | None = None,
        connections: "set[ClientConnection] | None" = None,
        budget: ReceiveBudget | None = None,
    ) -> None:
        """A connection.

        Args:
            handler: called with each request when its head is there.
            limits: what the client may ask for.
            connections: the connection is in this set while it is open.
            budget: the memory of bodies that are collected whole, of all connections together.
        """
        self.client = ""
        self.from_loopback = True
        self.budget = budget or ReceiveBudget()
        self.write_paused = False
        self._handler = handler
        limits = limits or ConnectionLimits()
        self._limits = limits
        self._connections = connections if connections is not None else set()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._state = _HEAD
        self._held = b""
        self._since = 0.0  # when the client was last waited for
        self._timer = CoarseTimer(limits.linger / 2, limits.send_timeout, self._look_at_the_time)
        self._reading = True
        self._last = False  # no request comes after this one
        self._request: Request | None = None
        self._missing = 0
        self._chunks: _BodyChunks | None = None
        self._continue_due = False

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class
        peer = transport.get_extra_info("peername")
        if peer:
            self.client = f"{peer[0]}:{peer[1]}"
            self.from_loopback = is_loopback(peer[0])
        self._connections.add(self)
        self._timer.start(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._state = _CLOSED
        self._connections.discard(self)
        self._timer.stop()
        self._held = b""
        self._chunks = None
        request, self._request = self._request, None
        if request is not None and not request.answered:
            request.disconnected()

    def eof_received(self) -> bool | None:
        """The client has gone.

        One that only sends no more, and would still read, looks the same; nobody is to compute for the former.
        """
        self._last = True
        if self._request is not None and not self._request.answered:
            self._transport.abort()
        return None

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.write_paused = False
        if self._request is not None and self._request.on_writable is not None:
            self._request.on_writable()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        while data:
            state = self._state
            if state is _HEAD:
                if self._held:
                    data, self._held = self._held + data, b""
                data = self._receive_head(data)
            elif state is _BODY or state is _DROPPED:
                if self._held:
                    data, self._held = self._held + data, b""
                data = self._receive_body(data)
            elif state is _ANSWERING:
                self._held += data
                if len(self._held) > WINDOW_BYTES:
                    self._read(False)
                return
            else:
                return

    # requests

    def _receive_head(self, data: bytes) -> bytes:
        """Take the head of a request, if it is complete; what follows it."""
        end = data.find(b"\r\n\r\n") + 4
        limits = self._limits
        try:
            if end < 4:
                if not self._since:
                    self._since = self._loop.time()
                    check_beginning(data)
                if len(data) > limits.head_bytes:
                    raise _head_too_large(limits.head_bytes)
                self._held = data
                return b""
            if end > limits.head_bytes:
                raise _head_too_large(limits.head_bytes)
            text = data[:end]
            head = _HEADS[text] if end <= MEMO_HEAD_BYTES else parse_head(text)
            if head is None:
                return data[end:].lstrip(b"\r\n")
            if head.count > limits.headers:
                msg = f"the request has {head.count} headers; at most {limits.headers} are allowed"
                raise Refusal(431, msg)
        except Refusal as refusal:
            self._refuse(refusal)
            return b""
        request = self._request = Request(self, head)
        self._last = self._last or not head.keep_alive
        length = head.length
        if 0 <= length <= len(data) - end:
            stop = end + length
            if length:
                request.arrived(data[end:stop])
            request.complete = True
            self._state = _ANSWERING
            rest = data[stop:]
        else:
            self._since = self._loop.time()
            self._state = _BODY
            self._missing = length
            self._chunks = _BodyChunks(self) if length < 0 else None
            self._continue_due = head.expects_continue and len(data) == end
            rest = self._receive_body(data[end:]) if len(data) > end else b""
            if self._state is _LINGERING:
                return b""
        if rest:
            # before the handler, which may answer at once and go on with what is held
            self._held, rest = rest, b""
        try:
            self._handler(request)
        except Exception as error:  # the connection and its other requests go on
            request.fail(error)
        return rest

    def _receive_body(self, data: bytes) -> bytes:
        """Take what belongs to the body; what follows it."""
        request = self._request
        self._since = self._loop.time()
        if self._chunks is not None:
            try:
                end = self._chunks.feed(data, LINES_AT_ONCE)
            except Refusal as refusal:
                self._broken(refusal)
                return b""
            rest = data[end:] if end >= 0 else b""
            complete = end >= 0
            if not complete and self._chunks.left:
                self._held = data[-self._chunks.left :]
                self._read(False)
                self._loop.call_soon(self._read_held)
        else:
            taken = min(len(data), self._missing)
            self._missing -= taken
            rest = data[taken:]
            complete = not self._missing
            if self._state is _BODY and request is not None:
                request.arrived(data[:taken] if rest else data)
        if self._state is _DROPPED:
            if complete:
                self._next()
            return rest
        assert request is not None
        if complete:
            request.complete = True
            self._state = _ANSWERING
            self._chunks = None
        elif request.waiting > WINDOW_BYTES:
            self._read(False)
        request.body_changed()
        return rest

    def chunk(self, piece: memoryview) -> None:
        """Some of a chunked body."""
        if self._state is _BODY and self._request is not None:
            self._request.arrived(bytes(piece))

    def body_wanted(self) -> None:
        """Somebody is there to take the body."""
        if self._continue_due:
            self._continue_due = False
            self._since = self._loop.time()
            self._transport.write(_CONTINUE)

    def taken(self) -> None:
        """There is room for more of the body."""
        request = self._request
        if (
            self._state is _BODY
            and not self._held
            and request is not None
            and request.waiting <= WINDOW_BYTES
        ):
            self._read(True)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that cannot be taken, and take no more."""
        request = self._request = Request(self, _UNKNOWN_HEAD)
        self._last = True
        self._state = _LINGERING
        body = orjson.dumps({"message": refusal.message})
        request.respond(refusal.status, body, (("Content-Type", "application/json"),))

    def _broken(self, refusal: Refusal) -> None:
        """The body's framing makes no sense: nothing more can be made of the connection."""
        request = self._request
        if request is None or request.begun or request.answered:
            self._transport.abort()
            return
        request.disconnected()
        self._refuse(refusal)

    # responses

    def end_of_head(self) -> bytes:
        """What ends the head of the response."""
        if self._state is _BODY and self._must_close:
            self._last = True
        if self._last:
            return b"Connection: close\r\n\r\n"
        request = self._request
        if request is None or not request.head.connection:
            return b"\r\n"
        return request.head.connection.encode() + b"\r\n"

    @property
    def _must_close(self) -> bool:
        """Whether nobody could tell, or would wait for, where the next request begins if this one is answered now.

        A client that was not asked for the body may leave it out (RFC 9110, section 10.1.1).
        """
        if self._state is not _BODY:
            return False
        return self._continue_due or self._chunks is not None or self._missing > WINDOW_BYTES

    def last_request(self) -> None:
        """The connection is closed after the response."""
        self._last = True

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._transport.write(data)

    def abort(self) -> None:
        """Break the connection off."""
        self._transport.abort()

    def leave(self) -> None:
        """Have no more to do with the connection, which goes on elsewhere if somebody has been given it."""
        self._state = _CLOSED
        self._transport.abort()

    def answered(self, request: Request) -> None:
        """The response has been written: go on with what the client sends next, or close."""
        if self._request is not request or self._state is _CLOSED:
            return
        if self._state is _ANSWERING:
            self._next()
        elif self._state is _BODY and not self._last and not self._must_close:
            request.take()
            self._state = _DROPPED
            self._read(True)
        else:
            self._linger()

    def _next(self) -> None:
        """Take the next request."""
        self._request = None
        self._since = 0.0
        if self._last:
            self._state = _CLOSED
            self._transport.close()
            return
        self._state = _HEAD
        if not self._reading:
            self._read(True)
        if self._held:
            # not at once: whoever answered has not returned yet
            self._loop.call_soon(self._read_held)

    def _read_held(self) -> None:
        if self._state in {_HEAD, _BODY} and self._held:
            data, self._held = self._held, b""
            self.data_received(data)
            if not self._held:
                self.taken()

    def _linger(self) -> None:
        """Close when the client has stopped sending, so that it gets to read the answer."""
        self._state = _LINGERING
        self._chunks = None
        self._continue_due = False
        self._since = self._loop.time()
        self._read(True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _read(self, on: bool) -> None:
        if on is not self._reading and not self._transport.is_closing():
            self._reading = on
            if on:
                self._transport.resume_reading()
                self._since = self._loop.time()
            else:
                self._transport.pause_reading()

    # time

    def _look_at_the_time(self, now: float) -> None:
        """Refuse or close what takes too long."""
        limits = self._limits
        waited = now - self._since if self._since and self._reading else 0.0
        if self._state is _HEAD:
            if waited > limits.head_timeout:
                self._refuse(Refusal(408, f"the headers took longer than {limits.head_timeout:g} seconds"))
        elif self._state is _LINGERING:
            if waited > limits.linger:
                self._transport.close()
        elif self._continue_due:
            pass  # it has not been asked for the body
        elif self._state in {_BODY, _DROPPED} and waited > limits.body_timeout:
            self._broken(Refusal(408, f"nothing came of the body for {limits.body_timeout:g} seconds"))

    def shutdown(self) -> None:
        """Answer what has been asked, then close."""
        self._last = True
        if self._state is _HEAD:
            self._state = _CLOSED
            self._transport.close()


class _BodyChunks(Chunks):
    """A chunked body whose bytes go to a connection."""

    def __init__(self, connection: ClientConnection) -> None:
        limits = connection._limits  # noqa: SLF001 - both are this module's
        super().__init__(1 << 62, 1 << 62, limits.head_bytes)
        self._connection = connection

    def take(self, piece: memoryview) -> None:
        """Pass it on."""
        self._connection.chunk(piece)


def _head_too_large(allowed: int) -> Refusal:
    return Refusal(431, f"request line and headers are larger than the allowed {allowed} bytes")
