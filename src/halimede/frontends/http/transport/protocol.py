"""HTTP/1.1 on one connection: bytes to exchanges, and their responses back, in order. No engine in it.

A request costs no task, no timer and, when its head was seen before, no parsing.

    data_received ─ head ─┬─ no body, or all of it ────────────────── handler(exchange)
                          ├─ Content-Length: LengthBody until full ──┘        │
                          └─ chunked: ChunkedBody until its end ─────┘        │
    transport.write ──────── in the order of the requests ───── exchange.respond, or exchange.stream
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property
from time import monotonic_ns
from typing import cast

import orjson

from halimede.core.clock import TURN_NS
from halimede.core.tensors import Buffer
from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.bearers import BearerCheck
from halimede.frontends.http.transport.bodies import ChunkedBody, LengthBody, begin_body
from halimede.frontends.http.transport.exchange import Exchange, Handler, MakeExchange, Reply
from halimede.frontends.http.transport.parts import JOINED_BYTES, joined
from halimede.frontends.http.transport.unread import UnreadAnswers
from halimede.frontends.http.transport.web_access import WebAccess, is_preflight
from halimede.frontends.traffic import Counts, new_counts
from halimede.http1.chunks import LINES_AT_ONCE
from halimede.http1.coarse_timer import CoarseTimer
from halimede.http1.head import (
    MEMO_HEAD_BYTES,
    MEMO_HEADS,
    Head,
    JsonLength,
    Refusal,
    check_beginning,
    json_length,
    parse_head,
)
from halimede.net.peers import client_text, peer_address
from halimede.net.receiving import BodyTooLargeError, ReceiveBudget, ReceiveError, StalledError
from halimede.net.server import Connections
from halimede.net.unsent import LARGE_ANSWER

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_EMPTY = memoryview(b"")
_UNKNOWN_HEAD = Head("", "", {}, (), "1.1")

_SLICE_BYTES = 512
"""Heads and bodies between two looks at the clock."""

_MANY_BYTES = 65_536
"""Who has sent so many may have sent more, which would be read in the same turn."""

_DIRECT_BODY_BYTES = 32_768
"""A body that lacks more than this is received straight into its buffer."""


class State(Enum):
    """What the connection makes of the next bytes."""

    HEAD = "the head of a request"
    LENGTH_BODY = "a body of known length"
    CHUNKED_BODY = "a chunked body"
    CLOSING = "nothing: no more requests are taken, and the last response closes the connection"


def refusal_body(refusal: Refusal) -> bytes:
    """The JSON that tells why a request is refused."""
    return orjson.dumps({"error": refusal.message})


_REFUSED: dict[type, int] = {BodyTooLargeError: 413, StalledError: 408}

RefusalBody = Callable[[Refusal], bytes]


class HttpProtocol(asyncio.Protocol):
    """One connection.

    Args:
        handler: called with each request when its body is complete. It, or something later, calls
            `exchange.respond` once.
        limits: what the client may ask for.
        connections: the connection is in this set while it is open.
        json_length: where binary tensors begin in a body, after the JSON.
        access: which requests are refused for the names that they give; None for none.
        counts: where responses are counted, by route and status.
        make_exchange: what makes an exchange of a request; one that logs it, perhaps.
        budget: the memory of unfinished bodies, of all connections together.
        bearers: which requests need a bearer token; None for none.
        refusal_body: the JSON that tells why a request is refused.

    Attributes:
        counts: as above.
        peer: the client's address, without its port; "" for one at a Unix socket.
        body_began_ns: while a request is handled whose body came in pieces: when the first was there, on the steady
            clock; else 0.
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits | None = None,
        connections: "Connections[HttpProtocol] | None" = None,
        json_length: JsonLength = json_length,
        access: WebAccess | None = None,
        counts: Counts | None = None,
        make_exchange: MakeExchange = Exchange,
        budget: ReceiveBudget | None = None,
        bearers: BearerCheck | None = None,
        refusal_body: RefusalBody = refusal_body,
    ) -> None:
        self.counts = new_counts() if counts is None else counts
        self._make_exchange = make_exchange
        self._handler = handler
        self._json_length = json_length
        self._limits = limits = limits or HttpLimits()
        self._budget = budget or ReceiveBudget()
        self._unread = UnreadAnswers(self, self._budget.unsent, refusal_body)
        self._connections = connections if connections is not None else Connections()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        # per connection
        self.peer = ""
        self.body_began_ns = 0
        self._access = access
        self._bearers = bearers
        self._refusal_body = refusal_body
        self._admitted: Head | None = None  # the latest head that needed no further look
        self.write_paused = False
        self._exchanges: deque[Exchange] = deque()
        self._state = State.HEAD
        self._reading = True
        self._held_back = False
        self._turn_ends = 0  # 0 while what is parsed is too little to matter
        self._turn_over = False
        self._draining = False
        self._eof = False
        self._lingering = False
        interval = min(limits.head_timeout, limits.body_timeout, limits.send_timeout, limits.linger) / 4
        self._timer = CoarseTimer(interval, limits.send_timeout, self._look_at_the_time)
        # per request that is being received
        self._held = b""
        self._since = 0.0
        self._head: Head | None = None
        self._length_body: LengthBody | None = None
        self._chunked_body: ChunkedBody | None = None
        self._continue_due = False

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class
        self.peer = peer_address(self._transport)
        self._connections.add(self)
        self._timer.start(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._connections.discard(self)
        self._timer.stop()
        self._state = State.CLOSING
        self._unread.closed()
        self._close_body()
        exchanges = list(self._exchanges)
        self._exchanges.clear()
        for exchange in exchanges:
            exchange.lost()
            self._disconnected(exchange)

    def eof_received(self) -> bool | None:
        """The client sends no more. It may still read, so answers that come yet are sent."""
        self._eof = True
        if self._lingering:
            return None
        if self._state in {State.LENGTH_BODY, State.CHUNKED_BODY} or (self._held and self._reading):
            self._refuse(Refusal(400, "the request ended before it was complete"))
        self._state = State.CLOSING
        self._held = b""
        for exchange in list(self._exchanges):
            self._disconnected(exchange)
        return True if self._exchanges else None

    def pause_writing(self) -> None:
        """The client reads too slowly: take no more requests from it."""
        self.write_paused = True
        self._unread.changed()
        self._flow()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.write_paused = False
        self._unread.changed()
        if self._exchanges and self._exchanges[0].streamed is not None:
            self._exchanges[0].streamed.flush()
        self._flow()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        size = len(data)
        self._turn_ends = monotonic_ns() + TURN_NS if size > _SLICE_BYTES else 0
        while data:
            state = self._state
            if state is State.HEAD:
                if self._held:
                    data, self._held = self._held + data, b""
                data = self._receive_heads(data)
            elif state is State.LENGTH_BODY:
                data = self._receive_length_body(data)
            elif state is State.CHUNKED_BODY:
                data = self._receive_chunked_body(data)
            else:
                return
        if size >= _MANY_BYTES and monotonic_ns() > self._turn_ends - TURN_NS // 2:
            self._end_turn()

    # One connection gets a millisecond of a turn of the loop; what is left waits, unread, while others are served.

    def _turn_is_over(self) -> bool:
        """Whether what has not been parsed yet has to wait."""
        if not self._turn_over and self._turn_ends and monotonic_ns() > self._turn_ends:
            self._end_turn()
        return self._turn_over

    def _end_turn(self) -> None:
        if not self._turn_over:
            self._turn_over = True
            self._loop.call_soon(self._next_turn)
            self._flow()

    def _next_turn(self) -> None:
        self._turn_over = False
        self._flow()

    # requests

    # Each `_receive` method takes what it can off the front of `data` and returns the rest.

    def _receive_heads(self, data: bytes) -> bytes:
        """Take requests, up to the first whose body has not all arrived or comes in chunks."""
        position, size = 0, len(data)
        limits = self._limits
        stop = 0 if self._turn_ends else size
        while position < size and self._state is State.HEAD:
            if position >= stop and not self._turn_is_over():
                stop = position + _SLICE_BYTES
            if not self._reading:
                self._held = data[position:]
                break
            start, position = position, data.find(b"\r\n\r\n", position) + 4
            try:
                if position < 4:
                    self._hold_head(data[start:])
                    break
                if position - start <= MEMO_HEAD_BYTES:
                    head = MEMO_HEADS[data[start:position]]
                elif position - start <= limits.head_bytes:
                    head = parse_head(data[start:position])
                else:
                    raise self._head_too_large()
                if head is None:
                    continue
                if head.count > limits.headers:
                    msg = f"the request has {head.count} headers; at most {limits.headers} are allowed"
                    raise Refusal(431, msg)
                if head is not self._admitted:
                    head = self._admit(head)
                    if head is None:
                        continue
                length = head.length
                if 0 <= length <= size - position:
                    start, position = position, position + length
                    self._dispatch(head, memoryview(data)[start:position] if length else _EMPTY)
                else:
                    return self._begin_body(head, data[position:])
            except Refusal as refusal:
                self._refuse(refusal)
        return b""

    def _admit(self, head: Head) -> Head | None:
        """The head of a request that is served; None for a question that is answered here: may a page send one?"""
        headers = self._access.check(head, self.peer) if self._access is not None else ()
        if headers and is_preflight(head):
            self._dispatch(head, _EMPTY, lambda exchange: exchange.respond(200, headers=headers))
            return None
        if self._bearers is not None:
            self._bearers.check(head)
        if headers:
            return head.answered_with(headers)
        self._admitted = head
        return head

    def look_again(self) -> None:
        """Who may call has changed: what was admitted before has to be admitted again."""
        self._admitted = None

    def _hold_head(self, data: bytes) -> None:
        """Keep the beginning of a head until the rest is there."""
        if not self._since:
            self._since = self._loop.time()
            check_beginning(data)
        if len(data) > self._limits.head_bytes:
            raise self._head_too_large()
        self._held = data

    def _head_too_large(self) -> Refusal:
        allowed = self._limits.head_bytes
        return Refusal(431, f"request line and headers are larger than the allowed {allowed} bytes")

    def _begin_body(self, head: Head, data: bytes) -> bytes:
        """Receive a body that has not all arrived, or comes in chunks."""
        body = begin_body(self, self._budget, head, self._limits, self._json_length)
        self._head = head
        self._since = self._loop.time()
        self.body_began_ns = monotonic_ns()
        if head.expects_continue and not data:
            if self._exchanges:
                self._continue_due = True
            else:
                self._transport.write(_CONTINUE)
        if isinstance(body, ChunkedBody):
            self._state = State.CHUNKED_BODY
            self._chunked_body = body
            return data
        self._state = State.LENGTH_BODY
        self._length_body = body
        return self._receive_length_body(data)

    def _receive_length_body(self, data: bytes) -> bytes:
        body = self._length_body
        assert body is not None
        taken = body.take(data)
        if not body.missing:
            self.body_complete(body.body)
        elif body.missing > _DIRECT_BODY_BYTES:
            self._transport.set_protocol(body)
        return data[taken:]

    def _receive_chunked_body(self, data: bytes) -> bytes:
        body = self._chunked_body
        assert body is not None
        try:
            end = body.feed(data, LINES_AT_ONCE)
        except Refusal as refusal:
            self._refuse(refusal)
            return b""
        if end < 0:
            rest = data[-body.left :] if body.left else b""
            if rest and self._turn_is_over():
                self._held, rest = rest, b""
            return rest
        self.body_complete(body.body)
        return data[end:]

    def body_complete(self, body: memoryview) -> None:
        """A body that came in pieces is there: hand its request on."""
        head = self._head
        assert head is not None
        self._stop_receiving()
        self._state = State.CLOSING if self._draining else State.HEAD
        self._dispatch(head, body)
        self.body_began_ns = 0

    def _stop_receiving(self) -> None:
        """Forget the request that was being received."""
        if self._length_body is not None:
            self._transport.set_protocol(self)
        self._close_body()
        self._head = None
        self._continue_due = False
        self._since = 0.0

    def _close_body(self) -> None:
        """Let go of what has arrived of the request."""
        body = self._length_body or self._chunked_body
        if body is not None:
            body.close()
            self._length_body = self._chunked_body = None
        self._held = b""
        if self._held_back:
            self.go_on()

    # the budget calls

    def hold_back(self) -> None:
        """Memory for bodies is short: read no more of this one."""
        self._held_back = True
        self._flow()

    def go_on(self) -> None:
        """Read on."""
        self._held_back = False
        self._flow()

    @property
    def may_send(self) -> bool:
        """Whether the client is read."""
        return self._reading

    def refuse_body(self, error: ReceiveError) -> None:
        """There is no memory for this one, or it comes too slowly."""
        status = _REFUSED.get(type(error), 503)
        self._refuse(Refusal(status, str(error)))

    def _dispatch(self, head: Head, body: memoryview, handler: Handler | None = None) -> None:
        exchange = self._make_exchange(self, head, body)
        self._exchanges.append(exchange)
        self._since = 0.0
        if not head.keep_alive or self._connections.leaving:
            self._state = State.CLOSING
        elif len(self._exchanges) >= self._limits.pipelined:
            self._flow()
        try:
            (handler or self._handler)(exchange)
        except Exception as error:  # the connection and its other requests go on
            exchange.fail(error)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that cannot be taken, after those before it, and take no more."""
        self._stop_receiving()
        self._state = State.CLOSING
        self._lingering = True
        exchange = self._make_exchange(self, refusal.head or _UNKNOWN_HEAD, _EMPTY)
        self._exchanges.append(exchange)
        body = self._refusal_body(refusal)
        exchange.respond(refusal.status, (body,), headers=refusal.headers)

    # responses

    def reply_ready(self, exchange: Exchange) -> None:
        """The exchange has its reply: send it, and those that waited for it."""
        if self._transport.is_closing():
            return
        if self._exchanges[0] is exchange:
            self._advance()
        elif (size := exchange.reply_size) > LARGE_ANSWER or exchange.reserved:
            self._unread.wait(exchange, size)

    def reserve(self, exchange: Exchange, size: int) -> Reply | None:
        """Count what making an answer takes, until it is written; without room, the reply in its place."""
        return self._unread.check(exchange, size)

    def _advance(self) -> None:
        """Send the replies that are there; or begin the stream whose turn it is."""
        exchanges = self._exchanges
        full = len(exchanges) >= self._limits.pipelined
        while exchanges and exchanges[0].reply is not None:
            exchange = exchanges[0]
            last = self._state is State.CLOSING and len(exchanges) == 1
            buffers, size = exchange.response(last)
            if size > LARGE_ANSWER and not self._unread.admit(exchange, size):
                buffers, size = exchange.response(last)
            self.write(buffers, size)
            if exchange.reserved:
                self._unread.reserve(exchange, 0)
            exchanges.popleft()
            if last:
                self._end()
        if full:
            self._flow()
        if exchanges:
            self.stream_ready(exchanges[0])
        elif self._continue_due:
            self._continue_due = False
            self._transport.write(_CONTINUE)

    def stream_ready(self, exchange: Exchange) -> None:
        """If the exchange's response is a stream, and its turn has come, begin it."""
        stream = exchange.streamed
        if stream is None or self._exchanges[0] is not exchange or self._transport.is_closing():
            return
        if not stream.chunked:  # only the end of the connection can end it
            self._stop_receiving()
            self._state = State.CLOSING
        last = self._state is State.CLOSING and len(self._exchanges) == 1
        stream.start(exchange.stream_head(last))

    def stream_sent(self) -> None:
        """The stream that is the first exchange's response is all written: go on with the next."""
        exchanges = self._exchanges
        exchange = exchanges.popleft()
        exchange.stream_sent()
        assert exchange.streamed is not None
        if not exchange.streamed.chunked or (self._state is State.CLOSING and not exchanges):
            self._end()
            return
        self._advance()
        self._flow()

    @property
    def in_flight(self) -> int:
        """Requests that have no whole response yet."""
        return len(self._exchanges)

    @cached_property
    def client(self) -> str:
        """The client's address."""
        return client_text(self._transport)

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the socket has not taken."""
        return self._transport.get_write_buffer_size()

    @property
    def unread(self) -> int:
        """These, and those of a stream that wait to be written."""
        stream = self._exchanges[0].streamed if self._exchanges else None
        return self.unsent + (0 if stream is None else stream.waiting)

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        """Send these, `size` bytes together."""
        if size <= JOINED_BYTES:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(joined(buffers))

    def abort(self) -> None:
        """Break the connection off."""
        self._transport.abort()

    def _end(self) -> None:
        """The last response is written: close, at once or when the client has stopped sending."""
        if self._lingering and not self._eof and self._transport.can_write_eof():
            self._since = self._loop.time()
            self._transport.write_eof()
            self._flow()
        else:
            self._transport.close()

    def _flow(self) -> None:
        """Read, or do not, as the client reads and as its requests are answered."""
        waits = self.write_paused or self._held_back or self._turn_over
        allowed = not waits and len(self._exchanges) < self._limits.pipelined
        if allowed is self._reading or self._transport.is_closing():
            return
        self._reading = allowed
        if not allowed:
            self._transport.pause_reading()
            return
        self._transport.resume_reading()
        if self._since:  # the client was not slow; it was not read
            self._since = self._loop.time()
        if self._held:
            data, self._held = self._held, b""
            self.data_received(data)

    def _disconnected(self, exchange: Exchange) -> None:
        callback, exchange.on_disconnect = exchange.on_disconnect, None
        if callback is not None:
            callback()

    # time

    def _look_at_the_time(self, now: float) -> None:
        """Refuse or close what takes too long."""
        limits = self._limits
        waited = now - self._since if self._since and self._reading else 0.0
        if self._state is State.HEAD:
            if waited > limits.head_timeout:
                self._refuse(Refusal(408, f"the headers took longer than {limits.head_timeout:g} seconds"))
        elif self._state is State.CLOSING:
            if self._lingering and not self._exchanges and waited > limits.linger:
                self._transport.close()
        else:
            body = self._length_body or self._chunked_body
            if body is not None and waited > limits.body_timeout + body.received / limits.body_rate:
                msg = f"the body is slower than {limits.body_rate} bytes a second"
                self._refuse(Refusal(408, msg))

    def shutdown(self) -> None:
        """Answer what has been asked, then close."""
        self._draining = True
        if self._state is State.HEAD:
            self._state = State.CLOSING
            if not self._exchanges:
                self._transport.close()
