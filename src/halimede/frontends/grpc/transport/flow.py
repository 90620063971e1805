"""What a connection sends: within the peer's windows, in turns, and no more than the socket takes."""

from __future__ import annotations

from asyncio import WriteTransport
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Generic, Protocol, TypeVar

from halimede.core.clock import Clock
from halimede.core.tensors import Buffer
from halimede.frontends.grpc.transport.frames import (
    DATA,
    DEFAULT_TABLE_SIZE,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADERS,
    MAX_WINDOW,
    MIN_FRAME_LIMIT,
    ConnectionFault,
    ErrorCode,
    frame,
)
from halimede.frontends.grpc.transport.responses import NO_DYNAMIC_TABLE
from halimede.net.peers import peer_address

# what one call may send before the next has its turn, and what gathers before the socket is tried
BURST = 256 * 2**10
# as many buffers of messages queued on a call make it unwritable, however short they are
MANY_BUFFERS = 256
# gathered writes up to this size are joined, larger ones written as views
JOIN_SIZE = 64 * 2**10
# the transport's own buffer beyond which it says stop
TRANSPORT_HIGH_WATER = 256 * 2**10


class SendingCall(Protocol):
    """What the sender needs of a call, and keeps there.

    Attributes:
        stream: its stream.
        send_window: what the peer still takes on it.
        outbox: what waits to be sent, the beginning first; None before anything had to wait.
        queued: bytes in the outbox.
        in_turn: it is among those that the sender goes round.
        trailers: the block that ends the call, to be sent once the outbox is empty; None while there is more to come.
    """

    stream: int
    send_window: int
    outbox: deque[memoryview] | None
    queued: int
    in_turn: bool
    trailers: bytes | None

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent."""


C = TypeVar("C", bound=SendingCall)


def _nothing() -> None:
    """Do nothing."""


def _fits(_size: int) -> bool:
    """Whether there is memory where none is counted."""
    return True


def _crowd_out(_call: object) -> None:
    """Where everything fits, there is nothing to end."""


class Sender(Generic[C]):
    """Writes frames to the transport, and DATA only as the peer's windows and the socket allow.

    Attributes:
        window: what the peer still takes on the connection.
        stream_window: what it takes on a new stream.
        max_frame: the longest payload it takes.
        quick_limit: the longest DATA payload that may be sent at once; 0 while nothing may.
        high_water: bytes queued on a call, or waiting to be compressed, beyond which it is not writable.
        queued: bytes queued on all calls.
        blocked: the transport's buffer is full.
        sent: how many times DATA was sent; what floods and keepalive are measured against.
        on_queued: called when messages wait after none did.
        on_unsent: called when the bytes that wait have become more, or have gone.
        fits: whether a large message of so many bytes may wait.
        crowd_out: ends a call whose message does not fit.
    """

    def __init__(
        self,
        transport: WriteTransport,
        clock: Clock,
        calls: Sized,
        high_water: int,
        finished: Callable[[C], None],
        writable: Callable[[C], None],
    ) -> None:
        transport.set_write_buffer_limits(high=TRANSPORT_HIGH_WATER)
        self.high_water = high_water
        self.window = DEFAULT_WINDOW
        self.stream_window = DEFAULT_WINDOW
        self.max_frame = MIN_FRAME_LIMIT
        self.quick_limit = MIN_FRAME_LIMIT
        self.queued = 0
        self.blocked = False
        self.sent = 0
        self.on_queued: Callable[[], None] = _nothing
        self.on_unsent: Callable[[], None] = _nothing
        self.fits: Callable[[int], bool] = _fits
        self.crowd_out: Callable[[C], None] = _crowd_out
        self._transport = transport
        self._clock = clock
        self._calls = calls
        self._finished = finished
        self._writable = writable
        self._corked = False
        self._out: list[Buffer] = []
        self._out_size = 0
        self._turns: deque[C] = deque()
        self._pumping = False
        self._tell_table_size = False
        self._table_told = False

    @property
    def peer(self) -> str:
        """The client's address, without its port; "" for one at a Unix socket."""
        return peer_address(self._transport)

    # frames, in the order in which they are sent

    def write(self, data: bytes) -> None:
        """Send these frames, with others where more calls are open: each write costs a third of a small call."""
        if not self._corked and not self._out:
            if len(self._calls) <= 1:
                self._transport.write(data)
                return
            self._clock.call_soon(self._flush_gathered)
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > BURST:
            self._flush()

    def cork(self) -> None:
        """Gather what is written until `uncork`."""
        self._corked = True

    def uncork(self) -> None:
        """Send what was gathered, in one write."""
        self._corked = False
        if self._out:
            self._flush()

    def _flush_gathered(self) -> None:
        if self._out and not self._transport.is_closing():
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if len(out) == 1:
            self._transport.write(out[0])
        elif self._out_size <= JOIN_SIZE:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        self._out = []
        self._out_size = 0

    def write_block(self, stream: int, block: bytes, flags: int = END_HEADERS) -> None:
        """Send a header block on a stream."""
        if self._tell_table_size:
            self._tell_table_size = False
            self._set_quick_limit()
            block = NO_DYNAMIC_TABLE + block
        self.sent += 1
        self.write(frame(HEADERS, flags, stream, block))

    def end(self, call: C, block: bytes) -> None:
        """Send the block that ends a call."""
        self.write_block(call.stream, block, END_HEADERS | END_STREAM)
        self._finished(call)

    # messages that wait

    def enqueued(self, call: C, length: int) -> None:
        """Count `length` bytes more in a call's outbox, and send what may be sent."""
        call.queued += length
        self.queued += length
        self._take_turn(call)
        self.pump()
        if 0 < self.queued <= length:
            self.on_queued()
        if self.queued:
            self.on_unsent()

    def drop(self, call: C) -> None:
        """Forget what waits on a call that has ended."""
        if call.queued:
            self.queued -= call.queued
            call.queued = 0
            self.on_unsent()
        call.outbox = None
        if call.in_turn:
            call.in_turn = False
            self._turns.remove(call)

    def _take_turn(self, call: C) -> None:
        if not call.in_turn and call.send_window > 0:
            call.in_turn = True
            self._turns.append(call)

    def pump(self) -> None:
        """Send of what waits as much as the peer and the socket take now."""
        if self._pumping:
            return
        self._pumping = True
        try:
            turns = self._turns
            while turns and self.window > 0 and not self.blocked:
                call = turns.popleft()
                call.in_turn = False
                if call.queued and call.send_window > 0:
                    self._send_some(call)
        finally:
            self._pumping = False

    def _send_some(self, call: C) -> None:
        allowed = left = min(call.queued, call.send_window, self.window, BURST)
        outbox = call.outbox
        assert outbox is not None  # bytes are queued, so there is one
        was_writable = call.writable
        pieces: list[Buffer] = []
        while left:
            length = need = min(left, self.max_frame)
            left -= length
            pieces.append(FRAME_HEADER.pack(length >> 8, length & 0xFF, DATA, 0, call.stream))
            while need:
                view = outbox[0]
                size = len(view)
                if size <= need:
                    pieces.append(view)
                    outbox.popleft()
                    need -= size
                else:
                    pieces.append(view[:need])
                    outbox[0] = view[need:]
                    need = 0
        call.queued -= allowed
        call.send_window -= allowed
        self.queued -= allowed
        if not self.queued:
            self.on_unsent()
        self.window -= allowed
        self.sent += 1
        self._write_pieces(pieces, allowed)
        if call.queued:
            self._take_turn(call)
        elif call.trailers is not None:
            self.end(call, call.trailers)
            return
        if not was_writable:
            self.tell_if_writable(call)

    def tell_if_writable(self, call: C) -> None:
        """Tell a call's handler, which was told otherwise, that it is writable, if it is."""
        if call.writable:
            self._writable(call)

    def _write_pieces(self, pieces: list[Buffer], size: int) -> None:
        self._out += pieces
        self._out_size += size
        if not self._corked or self._out_size > BURST:
            self._flush()

    # what the peer and the socket say

    def window_grown(self, increment: int) -> None:
        """Take a WINDOW_UPDATE of the connection.

        Raises:
            ConnectionFault: the window is beyond the limit.
        """
        self.window += increment
        if self.window > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is beyond 2^31-1")
        self.pump()

    def stream_window_grown(self, call: C, increment: int) -> bool:
        """Take a WINDOW_UPDATE of a stream; False if its window is beyond the limit."""
        call.send_window += increment
        if call.send_window > MAX_WINDOW:
            return False
        if call.queued:
            self._take_turn(call)
            self.pump()
        return True

    def set_stream_window(self, size: int, calls: Iterable[C]) -> None:
        """Take a new initial window, which moves those of the open streams, below zero even.

        What it allows to send waits for `pump`.

        Raises:
            ConnectionFault: a window is beyond the limit.
        """
        change = size - self.stream_window
        self.stream_window = size
        for call in calls:
            call.send_window += change
            if call.send_window > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is beyond 2^31-1")
            if call.queued:
                self._take_turn(call)

    def set_max_frame(self, size: int) -> None:
        """Take the longest payload that the peer accepts."""
        self.max_frame = size
        self._set_quick_limit()

    def set_table_limit(self, size: int) -> None:
        """Take the peer's limit for our dynamic table, which we do not use: below its default it must be told."""
        if size < DEFAULT_TABLE_SIZE and not self._table_told:
            self._table_told = self._tell_table_size = True
            self._set_quick_limit()

    def set_blocked(self, *, blocked: bool) -> None:
        """Take what the transport says of its buffer."""
        self.blocked = blocked
        self._set_quick_limit()
        if not blocked:
            self.pump()

    def _set_quick_limit(self) -> None:
        # a longer reply goes through the queue, which writes views rather than a joined copy
        busy = self.blocked or self._tell_table_size
        self.quick_limit = 0 if busy else min(self.max_frame, JOIN_SIZE)
