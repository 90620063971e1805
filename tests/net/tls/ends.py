"""Both ends of a TLS connection in memory: the server's is under test, the client's is OpenSSL itself."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from halimede.net.tls.certificates import TlsFiles, load_context
from halimede.net.tls.connection import TlsConnection


class Tcp(asyncio.Transport):
    """A TCP connection that keeps what is written until the test takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: TlsConnection
        self.sent = bytearray()
        self.high = 65_536
        self.full = False
        self.reading = True
        self.ended = self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.sent += data
        if not self.full and len(self.sent) > self.high:
            self.full = True
            self.protocol.pause_writing()

    def take(self, size: int = 1 << 30) -> bytes:
        """What the client receives next."""
        taken = bytes(self.sent[:size])
        del self.sent[:size]
        if self.full and len(self.sent) <= self.high // 4:
            self.full = False
            self.protocol.resume_writing()
        return taken

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high


class Received(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.transport: TlsConnection
        self.data = b""
        self.events: list[str] = []
        self.wants_to_answer = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsConnection)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.wants_to_answer

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(Received, asyncio.BufferedProtocol):
    """The same, received into buffers of a given size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.buffer = bytearray(size)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]


class Ends:
    """Both ends. Nothing travels but by `to_server` and `to_client`.

    Attributes:
        tcp: what is below the server's end.
        received: the protocol above it.
        server: the server's end.
        client: the client's.
    """

    def __init__(self, files: tuple[Path, Path], received: Received | None = None) -> None:
        self.received = received or Received()
        self.errors: list[Exception | None] = []
        self.refuses = False
        self.tcp = Tcp()
        self.server = self.tcp.protocol = TlsConnection(load_context(TlsFiles(*files), "h2"), self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._incoming, self._outgoing)
        self.server.connection_made(self.tcp)

    # the server's end calls

    def began(self, connection: TlsConnection) -> None:
        assert connection is self.server

    def ready(self, connection: TlsConnection) -> None:
        connection.shake_hands()

    def succeeded(self, _connection: TlsConnection) -> Received | None:
        return None if self.refuses else self.received

    def failed(self, _connection: TlsConnection, error: Exception | None) -> None:
        self.errors.append(error)

    # tests call

    def shake_hands(self) -> None:
        for _ in range(2):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.to_server()
                self.to_client()
        self.to_server()
        self.to_client()

    def to_server(self, piece: int = 1 << 30) -> None:
        """Let what the client has written arrive, in pieces of that size."""
        sent = self.sent()
        for start in range(0, len(sent), piece):
            self.server.data_received(sent[start : start + piece])

    def sent(self) -> bytes:
        """What the client has written, which will not arrive by itself."""
        return self._outgoing.read()

    def to_client(self) -> None:
        """Let what the server has written arrive."""
        while self.tcp.sent:
            self._incoming.write(self.tcp.take())

    def read(self) -> bytes:
        """What the client can decrypt now."""
        self.to_client()
        data = b""
        try:
            while piece := self.client.read(1 << 16):
                data += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return data
