"""A `ClientConnection` on a real socket, and handlers that tests need."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.http.connection import ClientConnection, Handler
from halimede.hosting.http.request import DisconnectedError, Request
from halimede.hosting.http.settings import ConnectionLimits
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections
from tests.frontends.http.serving import Client
from tests.support.loops import LoopThread

LIMIT = 64 << 20


@dataclass
class Served:
    """A listening socket."""

    loop: LoopThread
    port: int
    connections: Connections[ClientConnection]

    def client(self) -> Client:
        return Client(self.port)


@contextmanager
def serve(
    handler: Handler, limits: ConnectionLimits | None = None, budget: ReceiveBudget | None = None
) -> Iterator[Served]:
    """Connections that hand their requests to `handler`; at the end none may be left once the clients have gone."""
    connections: Connections[ClientConnection] = Connections()
    with LoopThread() as loop:

        async def listen() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(handler, limits, connections, budget), "127.0.0.1", 0
            )

        server = loop.run(listen())
        try:
            yield Served(loop, server.sockets[0].getsockname()[1], connections)
            loop.run(asyncio.wait_for(connections.gone(), 60), 60)
        finally:
            loop.call(server.close)


class Tasks:
    """A handler that answers each request with a coroutine.

    Attributes:
        errors: what the coroutines ended with, other than an answer.
        begun: set whenever one has begun.
        ended: set whenever one has ended.
    """

    def __init__(self, work: Callable[[Request], Coroutine[Any, Any, None]]) -> None:
        self.errors: list[Exception] = []
        self.begun = threading.Event()
        self.ended = threading.Event()
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request) -> None:
        self.begun.set()
        try:
            await self._work(request)
        except ApiError as error:
            request.respond(error.status, error.message.encode())
        except DisconnectedError as error:
            self.errors.append(error)
        finally:
            self.ended.set()


async def echo(request: Request) -> None:
    """Answer with the whole body."""
    request.respond(200, await request.read(LIMIT))


def describe(request: Request) -> None:
    """Answer at once with the request line."""
    head = request.head
    request.respond(200, f"{head.method} {head.path}?{head.query}".encode(), (("X-Client", request.client),))


def post(body: bytes, path: str = "/", *lines: str) -> bytes:
    """A request with a body of known length."""
    return _head("POST", path, f"Content-Length: {len(body)}", *lines) + body


def chunked(body: bytes, sizes: list[int], trailer: bytes = b"") -> bytes:
    """A request whose body comes in chunks of those sizes, and one with the rest."""
    parts, position = [_head("POST", "/", "Transfer-Encoding: chunked")], 0
    for size in [*sizes, len(body)]:
        piece = body[position : position + size]
        position += len(piece)
        if piece:
            parts.append(b"%x;note=1\r\n%b\r\n" % (len(piece), piece))
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


def get(path: str = "/", *lines: str) -> bytes:
    """A request without a body."""
    return _head("GET", path, *lines)


def _head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: h", *lines, "", "")).encode()
