"""One gRPC call as its handler sees it, and what the transport keeps of its HTTP/2 stream."""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer
from halimede.frontends.grpc.transport.compression import Compressor
from halimede.frontends.grpc.transport.flow import MANY_BUFFERS, Sender
from halimede.frontends.grpc.transport.frames import DATA, END_HEADERS, END_STREAM, HEADERS
from halimede.frontends.grpc.transport.messages import MessageReader
from halimede.frontends.grpc.transport.responses import (
    GZIP_HEADERS_BLOCK,
    HEADERS_BLOCK,
    MAX_MESSAGE,
    OK_TRAILERS,
    status_name,
    trailers,
    trailers_only,
)
from halimede.net.unsent import LARGE_ANSWER

logger = logging.getLogger("halimede")

Metadata = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A method with one request message.

    Attributes:
        handler: called with the call and the whole message when the client has sent all; it, or a later
            callback, ends the call with `reply` or `finish`.
        compression: zlib level at which replies are compressed for clients that accept gzip; 0 for not.
        group: the group of calls that it is in.
    """

    handler: Callable[[Call, memoryview], None]
    compression: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """A method with a stream of request messages.

    Attributes:
        handler: called when the call begins; it sets `on_message` and whatever else it wants to hear of.
        compression: as of `UnaryMethod`.
        group: as of `UnaryMethod`.
    """

    handler: Callable[[Call], None]
    compression: int = 0
    group: str = ""


Method = UnaryMethod | StreamMethod


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What the headers of a request say.

    Attributes:
        path: the method's full path.
        method: what handles it; None where the request is refused.
        unary: its handler, where it is a unary method.
        metadata: the application's headers, lower-case; names ending in "-bin" have bytes.
        timeout: nanoseconds until the deadline; -1 for none.
        encoding: how compressed messages are compressed.
        compression: the zlib level at which replies are compressed; 0 for not.
        refusal: the header block to refuse the request with; empty if it is good.
    """

    path: str
    method: Method | None
    unary: Callable[[Call, memoryview], None] | None
    metadata: Metadata
    timeout: int
    encoding: str
    compression: int
    refusal: bytes


class Receiver(Protocol):
    """What a call needs of the receiving half of its connection."""

    @property
    def stream_window(self) -> int:
        """Bytes that the client may send on a new stream."""

    def resume(self, call: Call) -> None:
        """Hand over the messages of a call that was paused."""


class Connection(Protocol):
    """What a call needs of its connection."""

    @property
    def client(self) -> str:
        """The client's address."""

    @property
    def inbound(self) -> Receiver:
        """The receiving half."""

    def forget(self, call: Call) -> None:
        """The call has been answered."""


# the frames around a small reply, each as one pack: HEADERS, DATA and the message's prefix; then the trailers
_HEAD = struct.Struct(f">4sBL{len(HEADERS_BLOCK)}sHBHLBL")
_HEAD_START = bytes((0, 0, len(HEADERS_BLOCK), HEADERS))
_TAIL = struct.Struct(f">5sL{len(OK_TRAILERS)}s")
_TAIL_START = bytes((0, 0, len(OK_TRAILERS), HEADERS, END_HEADERS | END_STREAM))
_MESSAGE = struct.Struct(">HBHLBL")  # a DATA frame's header and the message's prefix
_PREFIX = struct.Struct(">BL")


class Call:
    """One call: what came with it, and how to answer.

    After `finish`, `reply`, a cancellation or the loss of the connection, further sends do nothing.

    Attributes:
        path: the method's full path.
        metadata: the client's metadata, lower-case.
        deadline: when the client stops waiting, on the connection's clock; -1 for never.
        status: the gRPC status that the call was finished with.
        relayed: another process counts and logs it.
        cancelled: the client gave up, the deadline passed or the connection was lost.
        on_message: called with each message of a stream.
        on_half_close: called when the client has sent all of its stream.
        on_cancel: called once, at the moment the call is cancelled.
        on_writable: called when `writable` becomes true again.
    """

    __slots__ = (
        "cancelled",
        "closed",
        "compression",
        "compressor",
        "connection",
        "deadline",
        "encoding",
        "half_closed",
        "in_turn",
        "inflating",
        "message",
        "metadata",
        "on_cancel",
        "on_half_close",
        "on_message",
        "on_writable",
        "outbox",
        "path",
        "paused",
        "queued",
        "reader",
        "receive_window",
        "relayed",
        "send_window",
        "sender",
        "started",
        "status",
        "stream",
        "trailers",
        "unary",
        "waiting",
    )

    def __init__(self, connection: Connection, sender: Sender[Call], stream: int, head: RequestHead) -> None:
        self.path = head.path
        self.metadata = head.metadata
        self.deadline = -1
        self.status = 0
        self.relayed = False
        self.cancelled = False
        self.on_message: Callable[[memoryview], None] | None = None
        self.on_half_close: Callable[[], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

        # the rest is the transport's: the stream's state
        self.connection = connection
        self.sender = sender
        self.stream = stream
        self.unary = head.unary  # the handler of a unary method
        self.closed = False  # nothing is sent any more
        self.half_closed = False  # the client has sent all

        # what comes in
        self.encoding = head.encoding
        self.receive_window = connection.inbound.stream_window
        self.reader: MessageReader | None = None  # while a message is incomplete
        self.message: memoryview | None = None  # the one of a unary call, until the client half-closes
        self.paused = False
        self.inflating = False
        self.waiting: deque[tuple[memoryview, bool] | None] | None = None  # messages held back; None: the end

        # what goes out
        self.send_window = sender.stream_window
        self.started = False  # headers are sent
        self.compression = head.compression  # zlib level; 0 where not wanted or not accepted
        self.compressor: Compressor | None = None
        self.outbox: deque[memoryview] | None = None
        self.queued = 0  # bytes in the outbox
        self.in_turn = False  # among those that the sender goes round
        self.trailers: bytes | None = None  # sent once the outbox is empty

    @property
    def peer(self) -> str:
        """The client's address, without its port; "" for one at a Unix socket."""
        return self.sender.peer

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent, rather than letting it queue here."""
        if self.outbox is not None and len(self.outbox) > MANY_BUFFERS:
            return False
        uncompressed = 0 if self.compressor is None else self.compressor.waiting
        return self.queued + uncompressed <= self.sender.high_water

    def begin(self, request: InferRequest, version: int) -> None:
        """This version of the request's model is about to run it for this call: cancel it if the client gives up."""
        self.on_cancel = request.cancel

    def end(self) -> None:
        """The call is over. Handlers' callbacks keep it, and it them: without this, memory waits for the collector."""
        self.on_message = self.on_half_close = self.on_cancel = self.on_writable = None

    def _log_failure(self, status: int, message: str) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            client = self.connection.client
            logger.debug(
                "gRPC call failed with %s: %s from %s: %s",
                status_name(status),
                self.path,
                client,
                message[:MAX_MESSAGE],
            )

    def reply(self, parts: Sequence[Buffer]) -> None:
        """Send one message, made of these contiguous buffers in turn, and finish the call well."""
        sender = self.sender
        length = 5
        for part in parts:
            length += part.nbytes if type(part) is memoryview else len(part)
        if (
            length <= sender.quick_limit
            and length <= self.send_window
            and length <= sender.window
            and not self.closed
            and not self.started
            and not self.compression
        ):
            sender.window -= length
            sender.sent += 1
            stream = self.stream
            sender.write(
                b"".join(
                    (
                        _HEAD.pack(
                            _HEAD_START,
                            END_HEADERS,
                            stream,
                            HEADERS_BLOCK,
                            length >> 8,
                            length & 0xFF,
                            DATA,
                            stream,
                            0,
                            length - 5,
                        ),
                        *parts,
                        _TAIL.pack(_TAIL_START, stream, OK_TRAILERS),
                    )
                )
            )
            self.connection.forget(self)
            return
        self.send(parts)
        self.finish()

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message, made of these contiguous buffers in turn."""
        if self.closed or self.trailers is not None:
            return
        if not self.compression:
            self.enqueue(parts, compressed=False)
            return
        if self.compressor is None:
            self.compressor = Compressor(self, self.compression)
        self.compressor.send(parts)

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the call with a gRPC status and, for an error, its text."""
        if self.closed or self.trailers is not None:
            return
        if self.compressor is not None and self.compressor.working:
            self.compressor.finish(status, message)
            return
        self.status = int(status)
        if status:
            self._log_failure(status, message)
        if not self.started:
            block = trailers_only(status, message)
        else:
            block = trailers(status, message) if status or message else OK_TRAILERS
        if self.queued:
            self.trailers = block  # the sender goes on when the outbox is empty
        else:
            self.sender.end(self, block)

    def pause(self) -> None:
        """Hear of no more messages of the stream until `resume`; the client is soon made to wait."""
        self.paused = True

    def resume(self) -> None:
        """Hear of messages again, first of those that came meanwhile."""
        if self.paused:
            self.paused = False
            self.connection.inbound.resume(self)

    def tell_if_writable(self) -> None:
        """Tell the handler, which was told otherwise, that the call is writable, if it is."""
        self.sender.tell_if_writable(self)

    def enqueue(self, parts: Sequence[Buffer], *, compressed: bool) -> None:
        """Send a message as it is; what the client's windows do not allow waits."""
        sender = self.sender
        size = 0
        for part in parts:
            size += part.nbytes if type(part) is memoryview else len(part)
        length = size + 5
        if length > LARGE_ANSWER and not sender.fits(length):
            sender.crowd_out(self)
            return
        if not self.started:
            self.started = True
            sender.write_block(self.stream, GZIP_HEADERS_BLOCK if self.compression else HEADERS_BLOCK)
        if (
            length <= sender.quick_limit
            and length <= self.send_window
            and length <= sender.window
            and not self.queued
        ):
            sender.window -= length
            self.send_window -= length
            sender.sent += 1
            head = _MESSAGE.pack(length >> 8, length & 0xFF, DATA, self.stream, compressed, size)
            sender.write(b"".join((head, *parts)))
            return
        if self.outbox is None:
            self.outbox = deque()
        self.outbox.append(memoryview(_PREFIX.pack(compressed, size)))
        for part in parts:
            view = memoryview(part)
            if view.nbytes:
                self.outbox.append(view.cast("B"))
        sender.enqueued(self, length)
