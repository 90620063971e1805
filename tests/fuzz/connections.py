"""HTTP/1 and HTTP/2 connections that are given any bytes, in pieces of any size."""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from halimede.frontends.grpc.transport import frames
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.protocol import HttpProtocol
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from tests.frontends.grpc.transport.wire import Peer

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ADDRESS = ("127.0.0.1", 1)
_LOOP = asyncio.new_event_loop()
_SETTINGS = GrpcSettings(max_frame_size=16_384, max_ping_strikes=0, max_receive_message_size=2**20)


class _Transport(asyncio.Transport):
    """A client that sends what it is told, and keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closed = False
        self.ended = False
        self.reading = True
        self.protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _ADDRESS if name == "peername" else default

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    async def readable(self) -> None:
        """Wait until the protocol takes more, or nothing any more."""
        while not (self.reading or self.closed):  # noqa: ASYNC110 - turns are what it waits for
            await asyncio.sleep(0)

    def deliver(self, data: bytes) -> None:
        """As an event loop does it."""
        while data and not self.closed:
            protocol = self.protocol
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer: Any = protocol.get_buffer(-1)
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                protocol.buffer_updated(count)
                data = data[count:]
            else:
                protocol.data_received(data)
                return


async def _answers(make: Callable[[], Any], pieces: list[bytes], ends: bool) -> bytes:
    transport = _Transport()
    protocol = make()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    for piece in pieces:
        await transport.readable()
        transport.deliver(piece)
    for _ in range(3 + sum(piece.count(b"\n") for piece in pieces)):  # each request may take a turn
        await asyncio.sleep(0)
        await transport.readable()
    if ends and not transport.closed:
        transport.protocol.eof_received()
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    return bytes(transport.sent).replace(_CONTINUE, b"")


def _same_in_pieces(make: Callable[[], Any], data: bytes, *, ends: bool) -> None:
    """What is answered does not depend on how the bytes arrive."""
    if not data:
        return
    # a head that is not complete is refused early, or waits: that does depend on it
    size, data = data[0] + 1, data[1:] + b"\r\n\r\n\r\n\r\n"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    whole = _LOOP.run_until_complete(_answers(make, [data], ends))
    split = _LOOP.run_until_complete(_answers(make, pieces, ends))
    assert _errors_alike(split) == _errors_alike(whole)


def _errors_alike(sent: bytes) -> bytes:
    """What is sent, without the reason for which bytes are not HTTP, which the parser gives as early as it can."""
    return re.sub(rb"HTTP/1.1 (?:400|431|501|505).*", b"refused", sent, flags=re.DOTALL)


def _echo(exchange: Exchange) -> None:
    exchange.respond(200, (f"{exchange.method} {exchange.path} ".encode(), exchange.body), "text/plain")


def http1(data: bytes) -> None:
    """A connection to the server."""
    limits = HttpLimits(head_bytes=2048, headers=16, body_bytes=4096, json_bytes=2048, chunks=64, pipelined=4)
    _same_in_pieces(lambda: HttpProtocol(_echo, limits), data, ends=True)


def http1_host(data: bytes) -> None:
    """A connection to the host."""

    def answer(request: Request) -> None:
        body = bytearray()

        def more() -> None:
            body.extend(request.take())
            if request.complete and not request.answered:
                request.respond(200, request.head.path.encode() + b" " + body, ())

        request.receive(more)
        more()

    _same_in_pieces(lambda: ClientConnection(answer), data, ends=False)


def http2(data: bytes) -> None:
    """A connection for gRPC, from the first byte on or after its beginning."""
    if not data:
        return
    size, data = (data[0] & 0x7F) + 1, data[1:]
    peer = Peer(_SETTINGS)
    if size & 1:
        peer.send(frames.PREFACE, frames.settings({}))
    for at in range(0, len(data), size):
        peer.send(data[at : at + size])
    for call in peer.calls:
        call.reply((b"late",))
    sent = bytes(peer.transport.sent)
    if not sent.startswith(b"HTTP/1.1 400"):
        kinds = [found.kind for found in peer.received()]
        assert frames.GOAWAY not in kinds[:-1]
        assert not (peer.transport.closed and sent) or kinds[-1] == frames.GOAWAY
    peer.protocol.connection_lost(None)
    assert all(call.closed for call in peer.calls)
