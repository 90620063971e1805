"""What a connection receives: DATA frames to messages, messages to handlers, and window granted for more."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from halimede.core.buffers import POOL
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.compression import WBITS
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.frames import DEFAULT_WINDOW, ConnectionFault, ErrorCode, window_update
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.grpc.transport.messages import MessageReader, MessageTooLongError
from halimede.frontends.grpc.transport.receptions import Receptions, receive_status
from halimede.frontends.grpc.transport.responses import Status
from halimede.frontends.grpc.transport.turns import Turns
from halimede.frontends.inflation import Fault, InflateError, Inflater, Inflation, inflate_little
from halimede.net.receiving import ReceiveError

logger = logging.getLogger("halimede")

# what is read at once when it is not known what comes
READ_SIZE = 64 * 2**10
# between the frames of a long message: its next frame header and not much of what can be received in place
_SHORT_READ_SIZE = 4096
# what must be missing of a message, and the frames it comes in must have, for it to be received in place
_DIRECT_SIZE = 16_384
_DIRECT_FRAME_SIZE = 64 * 2**10
_NO_ROOM = memoryview(b"")
# what a compressed message may have to be inflated on the loop: it may become a thousand times as large
_INLINE_INFLATE = 1024
# bytes that a message takes that waits, apart from its content
_WAITING_COST = 256


class Inbound:
    """The receiving half of a connection.

    Attributes:
        window: bytes that the peer may still send.
        connection_window: what `window` is after a grant.
        stream_window: what a new stream may send.
        frame_open: a DATA frame is not complete yet.
        room: where the next bytes of a long message go; empty when anything else comes next.
        scratch: where other bytes go.
        held: complete unary calls that wait until replies have gone out.
        low_window: the window below which the peer is granted more.
    """

    def __init__(
        self,
        settings: GrpcSettings,
        sender: Sender[Call],
        turns: Turns,
        refuse: Callable[[Call, int, str], None],
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._turns = turns
        self._refuse = refuse
        self._receptions = Receptions(settings.budget, self, refuse)
        self._max_message = min(settings.max_receive_message_size, settings.budget.large_limit)
        self._everything = np.empty(READ_SIZE, np.uint8).data
        self._short = self._everything[:_SHORT_READ_SIZE]
        self.scratch = self._everything
        self.room = _NO_ROOM
        self.connection_window = self.window = max(DEFAULT_WINDOW, settings.connection_window)
        self.stream_window = settings.stream_window
        self.low_window = self.window // 2
        self._waiting = 0  # bytes that messages take that paused calls have not taken
        self.held: dict[Call, None] = {}
        self._inflations: dict[Call, Inflation] = {}
        # the DATA frame that is not complete yet
        self.frame_open = False
        self._call: Call | None = None
        self.last: Call | None = None  # of this frame or the one before: its message may be long
        self._frame_size = 0
        self._left = 0
        self._padding = 0
        self._ends = False

    # windows

    @property
    def over_limit(self) -> bool:
        """Whether so much waits on the connection that no more should come in."""
        return self._sender.queued + self._waiting > self._settings.max_buffered

    def grant(self) -> None:
        """Let the peer send more on the connection, unless too much waits already."""
        if self.window < self.low_window and not self.over_limit:
            self._sender.write(window_update(0, self.connection_window - self.window))
            self.window = self.connection_window

    def grant_stream(self, call: Call) -> None:
        """Let the peer send more on a stream, unless its call is paused or its message waits for memory."""
        if call.receive_window < self.stream_window // 2 and not (
            call.paused or call.half_closed or call.closed or self._receptions.held_back(call)
        ):
            self._sender.write(window_update(call.stream, self.stream_window - call.receive_window))
            self._sender.sent += 1
            call.receive_window = self.stream_window

    def count(self, length: int) -> None:
        """Count a DATA frame against the connection's window.

        Raises:
            ConnectionFault: it is more than was granted.
        """
        self.window -= length
        if self.window < 0:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window allows"
            )
        if self.window < self.low_window:
            self.grant()

    # DATA frames

    def begin(self, call: Call | None, payload: int, padding: int, *, ends: bool) -> None:
        """A DATA frame begins whose content `take` gets; without a call it is ignored."""
        self.frame_open = True
        self._call = self.last = call
        self._frame_size = self._left = payload
        self._padding = padding
        self._ends = ends
        if call is None:
            self.scratch = self._everything
        elif not ends:
            self.grant_stream(call)

    def take(self, view: memoryview, position: int) -> int:
        """Take what `view` has of the open frame from `position` on; returns where it, or this turn, ends."""
        chunk = view[position : position + self._left]
        if len(chunk):
            taken = len(chunk)
            if self._call is not None:
                taken -= self._feed(self._call, chunk)
            position += taken
            self._left -= taken
        if not self._left:
            skipped = min(self._padding, len(view) - position)
            self._padding -= skipped
            position += skipped
            if not self._padding:
                self._end_frame()
        return position

    def filled(self, count: int) -> None:
        """`count` bytes were received into `room`."""
        self._left -= count
        call = self._call
        if call is not None and call.reader is not None:
            call.reader.filled += count
            self._receptions.add(call, 0, count)
            self._complete(call, call.reader)
        if not self._left and not self._padding:
            self._end_frame()
        self.aim()

    def aim(self) -> None:
        """Find out where the next bytes go."""
        call = self.last
        reader = None if call is None or call.closed else call.reader
        room = _NO_ROOM if reader is None else reader.room()
        if len(room) < _DIRECT_SIZE or self._frame_size < _DIRECT_FRAME_SIZE:
            self.scratch = self._everything
            self.room = _NO_ROOM
            self.last = None
            return
        self.scratch = self._short
        self.room = room[: self._left] if self._left >= _DIRECT_SIZE else _NO_ROOM

    def drop(self, call: Call) -> None:
        """Let go of a call that has ended."""
        if call is self._call:
            self._call = None
        if call is self.last:
            self.aim()
        if call.waiting:
            self._waiting -= sum(_cost(item[0]) for item in call.waiting if item is not None)
        self.held.pop(call, None)
        self._receptions.close(call)
        if call.inflating:
            call.inflating = False
            self._inflations.pop(call).cancel()
        call.waiting = None
        call.reader = None
        call.message = None

    def _end_frame(self) -> None:
        self.frame_open = False
        call = self._call
        self._call = None
        if self._ends and call is not None and not call.closed:
            self.half_close(call)

    # messages

    def whole(self, call: Call, message: memoryview, length: int, *, ends: int) -> None:
        """A DATA frame of `length` bytes is one whole message of an open call."""
        self.count(length)
        call.receive_window -= length
        if (
            ends
            and call.unary is not None
            and call.message is None
            and not call.inflating
            and not self._sender.queued
        ):
            call.half_closed = True
            self.run(call, call.unary, call, message)
            return
        self.deliver(call, message, compressed=False)
        if not ends:
            self.grant_stream(call)
        elif not call.closed:
            self.half_close(call)

    def _feed(self, call: Call, chunk: memoryview) -> int:
        """Take messages, or what has come of one; returns how many bytes have to wait for another turn."""
        try:
            while len(chunk) and not call.closed and call.trailers is None:
                reader = call.reader
                if reader is None:
                    reader = call.reader = MessageReader(self._max_message)
                before = reader.filled
                chunk = reader.feed(chunk)
                if reader.message is not None and (before or not reader.complete):
                    self._receptions.add(call, len(reader.message), reader.filled - before)
                self._complete(call, reader)
                if len(chunk) and self._turns.over and not call.closed:
                    return len(chunk)
        except MessageTooLongError as error:
            self._refuse(call, Status.RESOURCE_EXHAUSTED, error.text)
        except ValueError as error:
            self._refuse(call, Status.INTERNAL, str(error))
        return 0

    def _complete(self, call: Call, reader: MessageReader) -> None:
        if reader.complete and reader.message is not None:
            call.reader = None
            if call.unary is None:
                self._receptions.close(call)
            self.deliver(call, reader.message, compressed=reader.compressed)

    def deliver(self, call: Call, message: memoryview, *, compressed: bool) -> None:
        """A message is complete: hand it to the call, or keep it for when the call wants it."""
        if call.trailers is not None:
            return  # its handler has finished, only the client does not know
        if call.paused or call.inflating or call.waiting:
            if call.waiting is None:
                call.waiting = deque()
            call.waiting.append((message, compressed))
            self._waiting += _cost(message)
            if self._waiting > self._settings.max_buffered + self.connection_window:
                # more than the contents of what the client may send: its messages are very many and very small
                self._refuse(
                    call, Status.RESOURCE_EXHAUSTED, "Too many messages of the call wait to be handled"
                )
        elif compressed:
            self._inflate(call, message)
        else:
            self._hand_over(call, message)

    def half_close(self, call: Call) -> None:
        """The peer has sent all of a call."""
        call.half_closed = True
        if call.reader is not None:
            self._refuse(call, Status.INTERNAL, "The stream ended in the middle of a message")
        elif call.inflating or call.waiting:
            if call.waiting is None:
                call.waiting = deque()
            call.waiting.append(None)
        else:
            self._ended(call)

    def resume(self, call: Call) -> None:
        """Hand over what waits for a call that was paused, then let it have more."""
        while call.waiting and not (call.paused or call.inflating or call.closed):
            item = call.waiting.popleft()
            if item is None:
                self._ended(call)
                continue
            message, compressed = item
            self._waiting -= _cost(message)
            if compressed:
                self._inflate(call, message)
            else:
                self._hand_over(call, message)
        self.grant_stream(call)
        self.grant()

    def _hand_over(self, call: Call, message: memoryview) -> None:
        if call.unary is None:
            if call.on_message is not None:
                self.run(call, call.on_message, message)
        elif call.message is None:
            call.message = message
            if not call.half_closed:
                self._receptions.add(call, len(message), max(0, len(message) - self._receptions.held(call)))
        else:
            self._refuse(call, Status.UNIMPLEMENTED, "A unary call has one message; more were sent")

    def _ended(self, call: Call) -> None:
        if call.trailers is not None:
            return
        if call.unary is None:
            if call.on_half_close is not None:
                self.run(call, call.on_half_close)
        elif call.message is None:
            self._refuse(call, Status.UNIMPLEMENTED, "A unary call has one message; none was sent")
        elif self._sender.queued > self._settings.max_buffered:
            self.held[call] = None
        else:
            self._begin_unary(call)

    def _begin_unary(self, call: Call) -> None:
        message, call.message = call.message, None
        self._receptions.close(call)
        if call.unary is not None and message is not None:
            self.run(call, call.unary, call, message)

    def relieved(self) -> None:
        """Replies have gone out: let calls begin and messages come that waited for it."""
        while self.held and self._sender.queued <= self._settings.max_buffered:
            call = next(iter(self.held))
            del self.held[call]
            self._begin_unary(call)
        self.grant()

    def run(self, call: Call, handler: Callable[..., None], *args: Any) -> None:
        """Call the application; what it fails with is logged and ends the call."""
        try:
            handler(*args)
        except Exception:
            logger.exception("The handler of gRPC call %s failed", call.path)
            self._refuse(call, Status.INTERNAL, "The server failed to handle the call; its log says why")

    # compressed messages

    def _inflate(self, call: Call, message: memoryview) -> None:
        encoding = call.encoding
        if encoding == "identity":
            self._refuse(
                call, Status.INTERNAL, "A message is compressed, but there is no grpc-encoding header"
            )
            return
        wbits = WBITS[encoding]
        try:
            small = len(message) <= _INLINE_INFLATE
            content = inflate_little(message, wbits, self._max_message) if small else None
        except InflateError as error:
            self._cannot_inflate(call, error)
            return
        if content is not None:
            self._hand_over(call, memoryview(content))
            return
        call.inflating = True
        inflater = Inflater(message, wbits, self._max_message)
        done, failed = partial(self._inflated, call), partial(self._cannot_inflate, call)
        self._inflations[call] = Inflation(self._settings.budget, inflater, call, done, failed)

    def _inflated(self, call: Call, content: memoryview) -> None:
        call.inflating = False
        del self._inflations[call]
        POOL.trim_later()  # a few bytes may have become many
        if call.paused:  # meanwhile
            call.waiting = call.waiting or deque()
            call.waiting.appendleft((content, False))
            self._waiting += _cost(content)
        else:
            self._hand_over(call, content)
            self.resume(call)

    def _cannot_inflate(self, call: Call, error: Exception) -> None:
        call.inflating = False
        self._inflations.pop(call, None)
        if isinstance(error, ReceiveError):
            self._refuse(call, receive_status(error), str(error))
        elif isinstance(error, InflateError):
            self._refuse(call, *_failure(error, call.encoding, self._max_message))
        else:
            logger.error("a message of gRPC call %s cannot be decompressed", call.path, exc_info=error)
            self._refuse(
                call, Status.INTERNAL, "The server failed to decompress the message; its log says why"
            )


def _failure(error: InflateError, encoding: str, limit: int) -> tuple[Status, str]:
    """The status and the text for a message that cannot be decompressed."""
    match error.fault:
        case Fault.TOO_LONG:
            return Status.RESOURCE_EXHAUSTED, f"Received message larger than max ({error.size} vs. {limit})"
        case Fault.NO_MEMORY:
            return Status.RESOURCE_EXHAUSTED, "There is no memory for the content of the message"
        case Fault.DAMAGED:
            why = error.detail
        case Fault.CUT_OFF | Fault.FOLLOWED:
            why = f"it is not one whole {encoding} stream"
    return Status.INTERNAL, f"Failed to decompress message: {why}"


def _cost(message: memoryview) -> int:
    """Bytes that a message takes while it waits."""
    return len(message) + _WAITING_COST
