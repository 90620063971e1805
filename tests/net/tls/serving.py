"""A server over TLS that sends back what it gets, and clients of it."""

import asyncio
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import uvloop

from halimede.net.server import Connections
from halimede.net.tls.handshakes import Handshakes
from halimede.net.tls.identity import Identity

WITHIN_S = 60.0


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def __init__(self, connections: Connections["Echo"]) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def shutdown(self) -> None:
        self.transport.close()


class EchoServer:
    """A listener on a free port.

    Attributes:
        handshakes: what is under test.
        connections: those whose handshake is done.
    """

    def __init__(self, identity: Identity, **limits: Any) -> None:
        self.connections: Connections[Echo] = Connections()
        self.handshakes = Handshakes("EchoService", identity, lambda: Echo(self.connections), **limits)
        self.port = 0

    async def __aenter__(self) -> "EchoServer":
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.handshakes.connect, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.handshakes.close()
        self.connections.shutdown()
        await self.connections.gone()

    async def connect(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection, over TLS if there is a context; the server has seen it if it is over TLS 1.3 too."""
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context)

    async def is_served(self, context: ssl.SSLContext) -> bool:
        """Whether a new connection is served."""
        try:
            reader, writer = await self.connect(context)
            try:
                return await asked(reader, writer)
            finally:
                writer.close()
        except OSError:
            return False


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether a connection still echoes."""
    writer.write(b"hello")
    return await reader.read(5) == b"hello"


def client(
    root: Path, files: tuple[Path, Path] | None = None, protocols: tuple[str, ...] = ("h2",)
) -> ssl.SSLContext:
    """A client that trusts a root, and perhaps has a certificate of its own."""
    context = ssl.create_default_context(cafile=root)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if files is not None:
        context.load_cert_chain(*files)
    return context


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop like the server's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, WITHIN_S))
