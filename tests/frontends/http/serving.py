"""An `HttpProtocol` on a real socket, and a client that sends bytes as they are."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Self

from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.transport.exchange import Exchange, Handler
from halimede.frontends.http.transport.protocol import HttpProtocol
from halimede.frontends.http.transport.web_access import WebAccess
from halimede.http1.head import JsonLength, json_length
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections
from tests.support.loops import LoopThread


@dataclass
class Answer:
    """One response as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A connection on which a test sends and reads what it likes."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((address, port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def vanish(self) -> None:
        """Break the connection off, without another word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.__exit__()

    def read(self, method: str = "POST") -> Answer:
        """The next response."""
        response = HTTPResponse(_Reader(self._file), method=method)  # type: ignore[arg-type]  # duck-typed
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())

    def read_line(self) -> bytes:
        return self._file.readline()

    def read_to_end(self) -> bytes:
        """Everything until the server closes."""
        return self._file.read()

    def ask(self, data: bytes, method: str = "POST") -> Answer:
        self.send(data)
        return self.read(method)


class _Reader:
    """What HTTPResponse takes for a socket: it shares one buffered file among all responses."""

    def __init__(self, file: object) -> None:
        self._file = file

    def makefile(self, _mode: str) -> "_Unclosable":
        return _Unclosable(self._file)


class _Unclosable:
    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def close(self) -> None:
        pass

    def flush(self) -> None:
        pass


@dataclass
class Served:
    """A server of one handler."""

    loop: LoopThread
    port: int
    connections: Connections[HttpProtocol]

    def client(self) -> Client:
        return Client(self.port)

    def talk(self, data: bytes) -> bytes:
        """All that the server sends to someone who sends this, and then no more."""
        with self.client() as client:
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            return client.read_to_end()

    def shutdown(self) -> None:
        def close() -> None:
            for connection in list(self.connections):
                connection.shutdown()

        self.loop.call(close)


@contextmanager
def serve(
    handler: Handler,
    limits: HttpLimits | None = None,
    json_length: JsonLength = json_length,
    access: WebAccess | None = None,
    budget: ReceiveBudget | None = None,
    kernel_bytes: int | None = None,
) -> Iterator[Served]:
    """The handler on a free port of 127.0.0.1 until the end of the block.

    Args:
        handler, limits, json_length, access, budget: as `HttpProtocol` takes them.
        kernel_bytes: how much the kernel keeps on the server's side of what a client does not read; megabytes if None.
    """
    connections: Connections[HttpProtocol] = Connections()
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    if kernel_bytes is not None:  # its connections inherit it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, kernel_bytes)
    port = listener.getsockname()[1]
    with LoopThread() as loop:
        server = loop.run(
            loop.loop.create_server(
                lambda: HttpProtocol(handler, limits, connections, json_length, access=access, budget=budget),
                sock=listener,
            )
        )
        try:
            yield Served(loop, port, connections)
        finally:
            loop.call(server.close)
            loop.call(lambda: _abort(connections))


def _abort(connections: Connections[HttpProtocol]) -> None:
    for connection in list(connections):
        connection.abort()


def echo(exchange: Exchange) -> None:
    """Answers with what came."""
    what = f"{exchange.method} {exchange.path} ".encode()
    exchange.respond(200, (what, exchange.body), "text/plain")


def post(body: bytes, path: str = "/echo", *headers: str) -> bytes:
    """A request with a body."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str = "/", *headers: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers]).encode() + b"\r\n\r\n"
