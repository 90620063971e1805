import asyncio
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from halimede.net.server import Connection, Connections, Endpoint, ListenError, Server
from halimede.net.tls.certificates import TlsFiles
from halimede.net.tls.identity import Identity
from tests.support.certificates import make_certificate


class Echo(asyncio.Protocol):
    """Sends back what it gets; a connection that owes an answer closes only once that is given."""

    def __init__(self, connections: "Connections[Echo]") -> None:
        self.connections = connections
        self.owing = asyncio.Event()
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if data == b"later":
            self.owing.set()
        else:
            self.transport.write(data)

    def answer(self) -> None:
        self.transport.write(b"answer")
        if self.closing:
            self.transport.close()

    def shutdown(self) -> None:
        self.closing = True
        if not self.owing.is_set():
            self.transport.close()


class Client:
    """A server with one endpoint, and a connection to it."""

    def __init__(self, **options: Any) -> None:
        self.server = Server()
        self.connections: Connections[Echo] = Connections()
        self.options = options

    def endpoint(self, port: int = 0, **options: Any) -> Endpoint:
        connections: Connections[Any] = self.connections
        return Endpoint(
            "EchoService",
            "--echo-port",
            "127.0.0.1",
            port,
            lambda: Echo(self.connections),
            connections,
            **options,
        )

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    async def owe(self, writer: asyncio.StreamWriter) -> Echo:
        """Make the only connection owe an answer."""
        writer.write(b"later")
        while not self.connections:  # noqa: ASYNC110 - the server accepts when it pleases
            await asyncio.sleep(0)
        [connection] = self.connections
        await connection.owing.wait()
        return connection


def run(coroutine: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(coroutine, 60))


def test_an_open_endpoint_answers_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        reader, writer = await client.connect(port)
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"
        [connection] = client.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert await client.server.close(5)
        writer.close()
        assert f"Started EchoService at 127.0.0.1:{port}" in caplog.text

    caplog.set_level(logging.INFO, "halimede")
    run(scenario())


@pytest.mark.parametrize("abstract", [False, True])
def test_an_endpoint_may_listen_at_a_unix_socket_as_well(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)  # the system's limit of such a path is 107 bytes
    name = f"@halimede-test-{os.getpid()}" if abstract else "socket"

    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint(unix_socket=name))
        near = socket.socket(socket.AF_UNIX)
        near.connect(name.replace("@", "\0"))
        reader, writer = await asyncio.open_unix_connection(sock=near)
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"
        other, other_writer = await client.connect(port)
        other_writer.write(b"hello")
        assert await other.read(5) == b"hello"
        assert f"Started EchoService at the Unix socket {name}" in caplog.text
        assert await client.server.close(5)
        assert await reader.read() == b""
        writer.close()
        other_writer.close()

    caplog.set_level(logging.INFO, "halimede")
    run(scenario())


def test_a_unix_socket_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = Client()
        with pytest.raises(
            ListenError, match=r"cannot listen at the Unix socket .*missing/socket: No such file"
        ):
            await client.server.open(client.endpoint(unix_socket=str(tmp_path / "missing" / "socket")))
        with pytest.raises(ListenError, match="path too long"):
            await client.server.open(client.endpoint(unix_socket=str(tmp_path / ("x" * 108))))

    run(scenario())


def test_closing_waits_for_answers_that_are_owed() -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        busy, busy_writer = await client.connect(port)
        waiting = await client.owe(busy_writer)
        idle, idle_writer = await client.connect(port)
        idle_writer.write(b"1")
        assert await idle.read(1) == b"1"
        closing = asyncio.ensure_future(client.server.close(10))
        assert await idle.read() == b""
        assert not closing.done()
        waiting.answer()
        assert await busy.read() == b"answer"
        assert await closing
        idle_writer.close()
        busy_writer.close()

    run(scenario())


def test_closing_gives_up_after_its_grace() -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        _, writer = await client.connect(port)
        await client.owe(writer)
        assert not await client.server.close(0.01)
        writer.close()

    run(scenario())


def test_a_server_that_stopped_accepting_keeps_its_connections() -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        reader, writer = await client.connect(port)
        writer.write(b"1")
        assert await reader.read(1) == b"1"
        client.server.stop_accepting()
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="refused"):
            await client.connect(port)
        writer.write(b"2")
        assert await reader.read(1) == b"2"
        writer.close()
        await client.server.close(5)

    run(scenario())


def test_a_port_in_use_is_told_with_its_flag() -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        with pytest.raises(ListenError) as caught:
            await Server().open(client.endpoint(port))
        assert str(caught.value) == (
            f"cannot listen at 127.0.0.1:{port}: the port is in use; choose another with --echo-port"
        )
        await client.server.close(5)

    run(scenario())


def test_a_port_in_use_is_told_as_tritonserver_does_for_its_services() -> None:
    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint())
        with pytest.raises(ListenError) as caught:
            await Server().open(client.endpoint(port, service="Echo"))
        assert str(caught.value) == (
            f"failed to start Echo service: Unavailable - Socket '127.0.0.1:{port}' already in use; "
            f"choose another port with --echo-port"
        )
        await client.server.close(5)

    run(scenario())


def test_servers_may_share_a_port_if_both_want_to() -> None:
    async def scenario() -> None:
        client, other = Client(), Server()
        port = await client.server.open(client.endpoint(reuse_port=True))
        assert await other.open(client.endpoint(port, reuse_port=True)) == port
        await client.server.close(5)
        await other.close(5)

    run(scenario())


def test_an_address_of_another_machine_is_refused() -> None:
    async def scenario() -> None:
        connections: Connections[Connection] = Connections()
        elsewhere = Endpoint("EchoService", "--echo-port", "192.0.2.1", 0, asyncio.Protocol, connections)
        with pytest.raises(ListenError, match=r"cannot listen at 192\.0\.2\.1:0: "):
            await Server().open(elsewhere)

    run(scenario())


def test_an_endpoint_over_tls_breaks_unfinished_handshakes_off_when_it_closes(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "server")

    async def scenario() -> None:
        client = Client()
        port = await client.server.open(client.endpoint(tls=Identity(TlsFiles(*files), "h2")))
        silent, silent_writer = await client.connect(port)
        context = ssl.create_default_context(cafile=files[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"hello")
        assert await reader.read(5) == b"hello"
        client.server.stop_accepting()
        assert await silent.read() == b""
        writer.write(b"still")
        assert await reader.read(5) == b"still"
        assert await client.server.close(5)
        writer.close()
        silent_writer.close()

    run(scenario())
