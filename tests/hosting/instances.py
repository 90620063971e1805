"""An instance that speaks the container's contract on a real socket, and does what a test wants of it."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """A request as the instance got it; header names are lower-case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What the instance answers.

    Attributes:
        status: such as 200.
        body: the body, or its chunks.
        headers: further headers.
        breaks: the connection is broken off after what there is of the body, of which more was announced.
    """

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: bool = False


Answer = Callable[[Received], Reply]


def echo(received: Received) -> Reply:
    """The body that came."""
    return Reply(200, received.body, {"Content-Type": received.headers.get("content-type", "text/plain")})


class FakeInstance:
    """One instance.

    Attributes:
        port: where it listens.
        invoke: answers invocations.
        on_load: answers loads before they count, with None for what a server does by itself.
        on_unload: the same of unloads.
        room: how many models fit, -1 for any number.
        seen: the requests that came, pings aside.
        models: hash → url of the models that are loaded.
        most_invoked: how many invocations there were at one time at most.
    """

    def __init__(self) -> None:
        self.invoke: Answer = echo
        self.on_load: Callable[[Received], Reply | None] = lambda _: None
        self.on_unload: Callable[[Received], Reply | None] = lambda _: None
        self.room = -1
        self.seen: list[Received] = []
        self.models: dict[str, str] = {}
        self.broken_rules: list[str] = []
        self.running: dict[str, int] = {}
        self.most_invoked = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"instance": self}))
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-instance")
        self._thread.start()

    def close(self) -> None:
        """Accept nothing any more, and break off what is open."""
        self._server.shutdown()
        self._server.server_close()
        self.break_off()
        self._thread.join(60)

    def break_off(self) -> None:
        """Reset the connections that are open."""
        self._server.break_off()

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        return len(self._server.open)

    def paths(self, method: str = "POST") -> list[str]:
        """The paths of the requests that came."""
        return [each.path for each in list(self.seen) if each.method == method]

    def answer(self, received: Received) -> Reply:
        if received.path == "/ping":
            return Reply()
        with self._lock:
            self.seen.append(received)
        if received.path == "/models" and received.method == "POST":
            return self.on_load(received) or self._load(received)
        if received.path.startswith("/models/") and received.method == "DELETE":
            return self.on_unload(received) or self._unload(received.path.removeprefix("/models/"))
        name = received.path.split("/")[2] if received.path.startswith("/models/") else ""
        if name and name not in self.models:
            return Reply(404)
        with self._lock:
            self.running[name] = self.running.get(name, 0) + 1
            self.most_invoked = max(self.most_invoked, sum(self.running.values()))
        try:
            return self.invoke(received)
        finally:
            with self._lock:
                self.running[name] -= 1

    def _load(self, received: Received) -> Reply:
        document: dict[str, Any] = json.loads(received.body)
        name = document["model_name"]
        with self._lock:
            if name in self.models:
                return Reply(409, b'{"error": "is loaded"}')
            if 0 <= self.room <= len(self.models):
                return Reply(507, b'{"error": "out of memory"}')
            self.models[name] = document["url"]
        return Reply()

    def _unload(self, name: str) -> Reply:
        with self._lock:
            if self.running.get(name):
                self.broken_rules.append(f"{name} was unloaded while it ran")
            return Reply() if self.models.pop(name, None) is not None else Reply(404)


@contextmanager
def fake_instance() -> Iterator[FakeInstance]:
    """An instance that echoes invocations."""
    instance = FakeInstance()
    try:
        yield instance
    finally:
        instance.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.open: set[socket.socket] = set()

    def break_off(self) -> None:
        for each in list(self.open):
            break_off(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    instance: FakeInstance
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Nothing: tests look at what was seen."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, self._body(headers))
        reply = self.instance.answer(received)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if isinstance(reply.body, bytes):
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body) + reply.breaks))
            self.end_headers()
            self.wfile.write(reply.body)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in reply.body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not reply.breaks:
                self.wfile.write(b"0\r\n\r\n")
        if reply.breaks:
            time.sleep(0.02)  # sleeps: a moment in which what was sent is read
            break_off(self.connection)
            self.close_connection = True

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            size = int(headers.get("content-length", 0))
            body = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionResetError
            return body
        pieces = []
        while size := int(self.rfile.readline() or "-1", 16):
            if size < 0:
                raise ConnectionResetError
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)


def break_off(connection: socket.socket) -> None:
    """Reset a connection."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    except OSError:  # it is closed already
        pass
