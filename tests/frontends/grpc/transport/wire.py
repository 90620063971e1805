"""A peer for the gRPC transport that says exactly what a test wants, on a transport that only remembers."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpack import Decoder, Encoder

from halimede.core.clock import VirtualClock
from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.call import Call, Method, StreamMethod, UnaryMethod
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings

ECHO = "/test.Service/Echo"
STREAM = "/test.Service/Stream"
WAIT = "/test.Service/Wait"
COMPRESS = "/test.Service/Compress"
BROKEN = "/test.Service/Broken"


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


@dataclass
class Reply:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None
    ended: bool = False

    @property
    def messages(self) -> list[bytes]:
        found = []
        data = self.data
        while data:
            length = int.from_bytes(data[1:5], "big")
            assert len(data) >= 5 + length
            found.append(data[5 : 5 + length])
            data = data[5 + length :]
        return found

    @property
    def status(self) -> int:
        return int((self.trailers or self.headers)["grpc-status"])

    @property
    def text(self) -> str:
        return (self.trailers or self.headers).get("grpc-message", "")


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; `full` makes it say so from the next write on."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.protocol: GrpcProtocol | None = None
        self.writes = 0
        self.ended = False
        self.aborted = False
        self.full = False
        self.paused = False
        self._reading = True
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.writes += 1
        self.sent += data
        if self.full and not self.paused and self.protocol is not None:
            self.paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def drain(self) -> None:
        """The socket takes everything again."""
        assert self.protocol is not None
        self.full = self.paused = False
        self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    @property
    def closed(self) -> bool:
        return self.ended or self.aborted


def echo(call: Call, message: memoryview) -> None:
    call.reply((message,))


def echo_stream(call: Call) -> None:
    call.on_message = lambda message: call.send((message,))
    call.on_half_close = call.finish


def broken(call: Call, message: memoryview) -> None:
    raise RuntimeError("this handler is broken")


class Peer:
    """A client on a connection of its own; `calls` are those of the method that only waits."""

    def __init__(
        self,
        settings: GrpcSettings | None = None,
        methods: Mapping[str, Method] | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.calls: list[Call] = []
        self.messages: list[bytes] = []
        self.open_connections: set[GrpcProtocol] = set()
        known: dict[str, Method] = {
            ECHO: UnaryMethod(echo),
            STREAM: StreamMethod(echo_stream),
            WAIT: UnaryMethod(self._wait),
            COMPRESS: UnaryMethod(echo, compression=6),
            BROKEN: UnaryMethod(broken),
        }
        self.protocol = GrpcProtocol(
            {**known, **(methods or {})}, settings or GrpcSettings(), self.clock, self.open_connections
        )
        self.transport = MemoryTransport()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self._next = 1
        self._read = 0

    def _wait(self, call: Call, message: memoryview) -> None:
        self.calls.append(call)
        self.messages.append(bytes(message))

    def send(self, *data: bytes) -> None:
        """The bytes arrive, as an event loop hands them over."""
        rest = b"".join(data)
        while rest:
            if not self.transport.is_reading():
                self.clock.run()
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self.protocol.buffer_updated(count)
            rest = rest[count:]

    def start(self, values: dict[int, int] | None = None) -> "Peer":
        """The connection stands, and what that took is read."""
        self.send(frames.PREFACE, frames.settings(values or {}), frames.SETTINGS_ACK)
        self.received()
        return self

    def received(self) -> list[Frame]:
        """The frames sent since the last look."""
        self.clock.run()
        data = bytes(self.transport.sent[self._read :])
        found = []
        position = 0
        while position < len(data):
            high, low, kind, flags, stream = frames.FRAME_HEADER.unpack_from(data, position)
            start = position + frames.HEADER_SIZE
            position = start + (high << 8 | low)
            assert position <= len(data), "a frame is not whole"
            found.append(Frame(kind, flags, stream, data[start:position]))
        self._read += position
        return found

    def replies(self) -> dict[int, Reply]:
        """What came on each stream since the last look."""
        replies: dict[int, Reply] = {}
        for found in self.received():
            if not found.stream:
                continue
            reply = replies.setdefault(found.stream, Reply())
            if found.kind == frames.HEADERS:
                fields = {str(name): str(value) for name, value in self.decoder.decode(found.payload)}
                if ":status" in fields:
                    reply.headers = fields
                else:
                    reply.trailers = fields
                reply.ended = bool(found.flags & frames.END_STREAM)
            elif found.kind == frames.DATA:
                reply.data += found.payload
            elif found.kind == frames.RST_STREAM:
                reply.reset = int.from_bytes(found.payload, "big")
        return replies

    def goaway(self) -> tuple[int, frames.ErrorCode, str]:
        """The last GOAWAY since the last look: last stream, code, text."""
        payload = [found for found in self.received() if found.kind == frames.GOAWAY][-1].payload
        return (
            int.from_bytes(payload[:4], "big"),
            frames.ErrorCode(int.from_bytes(payload[4:8], "big")),
            payload[8:].decode(),
        )

    def block(self, path: str = ECHO, **changed: str) -> bytes:
        """A request's header block; `changed` replaces or (empty) removes headers, "_" for "-", "p_" for ":"."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        for name, value in changed.items():
            fields[name.replace("p_", ":").replace("_", "-")] = value
        return self.encoder.encode([(name, value) for name, value in fields.items() if value])

    def inbound_window(self) -> int:
        """What may still be sent on the connection."""
        return self.protocol.inbound.window

    def stream(self) -> int:
        """The next stream."""
        self._next += 2
        return self._next - 2

    def open(self, path: str = ECHO, *, ends: bool = False, **changed: str) -> int:
        """Send a request's headers; returns the stream."""
        stream = self.stream()
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        self.send(frames.frame(frames.HEADERS, flags, stream, self.block(path, **changed)))
        return stream

    def data(self, stream: int, payload: bytes, *, ends: bool = False) -> None:
        """Send DATA in one frame."""
        self.send(frames.frame(frames.DATA, frames.END_STREAM if ends else 0, stream, payload))

    def call(self, path: str = ECHO, payload: bytes = b"hello", **changed: str) -> int:
        """Send a whole unary request; returns the stream."""
        stream = self.stream()
        block = self.block(path, **changed)
        self.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block))
        self.data(stream, message(payload), ends=True)
        return stream

    def echo(self, payload: bytes = b"hello", **changed: str) -> Reply:
        """The reply to a unary request."""
        stream = self.call(payload=payload, **changed)
        return self.replies()[stream]


def message(payload: bytes, *, compressed: bool = False) -> bytes:
    """A gRPC message."""
    return bytes((compressed,)) + len(payload).to_bytes(4, "big") + payload
