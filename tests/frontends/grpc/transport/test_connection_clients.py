"""The transport with real clients: grpcio (sync and asyncio), h2load, nghttp, plain sockets."""

import asyncio
import gzip
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
import pytest

from halimede.core.clock import LoopClock
from halimede.frontends import inflation
from halimede.frontends.grpc.transport import compression, frames
from halimede.frontends.grpc.transport.call import Call, Method, StreamMethod, UnaryMethod
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from tests.frontends.grpc.transport.wire import broken, echo, echo_stream, message
from tests.support.loops import LoopThread

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Server:
    """The transport on a port of its own."""

    def __init__(self, settings: GrpcSettings | None = None) -> None:
        self._settings = settings or GrpcSettings()
        self._threads = ThreadPoolExecutor(1)
        self.loop = LoopThread()
        self.connections: set[GrpcProtocol] = set()
        self.waiting: list[Call] = []
        self.cancelled = threading.Event()
        self.began = threading.Event()

    def __enter__(self) -> Self:
        self.loop.__enter__()
        self.port = self.loop.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.run(self._stop())
        self.loop.__exit__(kind, value, trace)
        self._threads.shutdown()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _start(self) -> int:
        loop = asyncio.get_running_loop()
        self._clock = LoopClock(loop)
        methods: dict[str, Method] = {
            "/test/Echo": UnaryMethod(echo),
            "/test/Thread": UnaryMethod(self._in_thread),
            "/test/Compress": UnaryMethod(echo, compression=1),
            "/test/Wait": UnaryMethod(self._wait),
            "/test/Stream": StreamMethod(echo_stream),
            "/test/Broken": UnaryMethod(broken),
            "/test/Fail": UnaryMethod(lambda call, message: call.finish(9, "50 % of this – failed\n")),
        }
        self._server = await loop.create_server(
            lambda: GrpcProtocol(methods, self._settings, self._clock, self.connections), "127.0.0.1", 0
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()  # for the connections too
        while self.connections:  # noqa: ASYNC110 - the transport offers no event for this, and it is one turn away
            await asyncio.sleep(0)
        self._clock.close()

    def _in_thread(self, call: Call, message: memoryview) -> None:
        loop = asyncio.get_running_loop()
        self._threads.submit(lambda: loop.call_soon_threadsafe(call.reply, (message,)))

    def _wait(self, call: Call, message: memoryview) -> None:
        call.on_cancel = self.cancelled.set
        self.waiting.append(call)
        self.began.set()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.target, options=UNLIMITED) as channel:
        yield channel


@pytest.mark.parametrize("method", ["/test/Echo", "/test/Thread", "/test/Compress"])
@pytest.mark.parametrize("size", [0, 1, 200, 16_374, 16_379, 16_380, 70_000, 1_000_000, 10_000_000])
def test_messages_of_every_size_come_back(channel: Any, method: str, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    call = channel.unary_unary(method)
    assert call(payload, timeout=20) == payload
    assert call(payload, timeout=20, compression=grpc.Compression.Gzip) == payload
    assert call(payload, timeout=20, compression=grpc.Compression.Deflate) == payload


def test_many_calls_at_once_on_one_connection(channel: Any) -> None:
    calls = [
        channel.unary_unary(method).future(bytes((index % 256,)) * index * 20, timeout=30)
        for index in range(400)
        for method in ("/test/Echo", "/test/Thread")
    ]
    assert [call.result() for call in calls] == [
        bytes((index % 256,)) * index * 20 for index in range(400) for _ in range(2)
    ]


def test_large_calls_at_once_on_one_connection(channel: Any) -> None:
    payloads = [bytes((index,)) * 3_000_000 for index in range(8)]
    calls = [channel.unary_unary("/test/Thread").future(payload, timeout=60) for payload in payloads]
    assert [call.result() for call in calls] == payloads


def test_stream_of_messages(channel: Any) -> None:
    payloads = [bytes((index,)) * (index * 997) for index in range(200)]
    assert list(channel.stream_stream("/test/Stream")(iter(payloads), timeout=30)) == payloads


def test_errors_carry_status_and_text(channel: Any) -> None:
    for method, code, text in (
        ("/test/Fail", grpc.StatusCode.FAILED_PRECONDITION, "50 % of this – failed\n"),
        ("/test/Broken", grpc.StatusCode.INTERNAL, "The server failed to handle the call; its log says why"),
        ("/test/Nope", grpc.StatusCode.UNIMPLEMENTED, "Method not found: /test/Nope"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method)(b"x", timeout=10)
        assert caught.value.code() == code
        assert caught.value.details() == text


def test_deadline_and_cancel_reach_the_handler(server: Server, channel: Any) -> None:
    server.cancelled.clear()
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/test/Wait")(b"x", timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.cancelled.wait(10)
    server.cancelled.clear()
    server.began.clear()
    call = channel.unary_unary("/test/Wait").future(b"x")
    assert server.began.wait(10)
    call.cancel()
    assert server.cancelled.wait(10)


def test_calls_with_deadlines_and_metadata(channel: Any) -> None:
    call = channel.unary_unary("/test/Echo")
    for index in range(200):
        metadata = [("index", str(index)), ("raw-bin", bytes((index,)))]
        assert call(b"x", timeout=10 + index / 10, metadata=metadata) == b"x"


def test_graceful_shutdown_finishes_calls_and_the_client_reconnects() -> None:
    with Server() as server, grpc.insecure_channel(server.target) as channel:
        call = channel.unary_unary("/test/Wait").future(b"x")
        assert server.began.wait(10)
        (connection,) = server.connections
        server.loop.call(connection.shutdown)
        assert channel.unary_unary("/test/Echo")(b"again", timeout=10, wait_for_ready=True) == b"again"
        server.loop.call(server.waiting[0].reply, (b"finished",))
        assert call.result(timeout=60) == b"finished"


def test_asyncio_client(server: Server) -> None:
    async def talk() -> None:
        async with grpc.aio.insecure_channel(server.target, options=UNLIMITED) as channel:
            one = channel.unary_unary("/test/Echo")
            payloads = [bytes((index,)) * index * 500 for index in range(100)]
            assert await asyncio.gather(*(one(payload, timeout=20) for payload in payloads)) == payloads
            stream = channel.stream_stream("/test/Stream")(timeout=20)
            for payload in payloads:
                await stream.write(payload)
                assert await stream.read() == payload
            await stream.done_writing()
            assert await stream.code() == grpc.StatusCode.OK

    asyncio.run(talk())


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not there: install it with 'apt-get install nghttp2-client'"
    return found


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body"
    path.write_bytes(message(bytes(200)))
    return path


@pytest.mark.parametrize(("connections", "streams"), [(1, 1), (1, 32), (8, 8)])
def test_h2load(server: Server, body: Path, connections: int, streams: int) -> None:
    command = [_tool("h2load"), "-n", "2000", "-c", str(connections), "-m", str(streams)]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", str(body)]
    done = subprocess.run(
        [*command, f"http://{server.target}/test/Echo"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout
    assert "2000 2xx" in done.stdout


def test_nghttp_with_padding_and_small_windows(server: Server, tmp_path: Path) -> None:
    payload = bytes(range(256)) * 4000
    path = tmp_path / "large"
    path.write_bytes(message(payload))
    command = [_tool("nghttp"), "-b", "50", "-w", "16", "-W", "17", "-H", "content-type: application/grpc"]
    command += ["-H", ":method: POST", "--header-table-size=0", "-d", str(path)]
    done = subprocess.run(
        [*command, f"http://{server.target}/test/Echo"], capture_output=True, timeout=60, check=True
    )
    assert done.stdout == message(payload)


def test_http_1_client_reads_a_sentence(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"gRPC over HTTP/2" in received


def test_flooding_client_reads_why_it_was_cut_off_and_others_are_served(server: Server, channel: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(frames.PREFACE + frames.settings({}))
        connection.sendall(frames.ping(bytes(8)) * 20)
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert received.endswith(b"too_many_pings")
    assert channel.unary_unary("/test/Echo")(b"x", timeout=10) == b"x"


def test_client_that_never_reads_leaves_others_served(server: Server, channel: Any) -> None:
    block = b"\x83\x86\x00\x05:path\x0a/test/Echo\x00\x0ccontent-type\x10application/grpc"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(frames.PREFACE + frames.settings({}))
        for stream in range(1, 101, 2):
            connection.sendall(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block))
            connection.sendall(frames.frame(frames.DATA, frames.END_STREAM, stream, message(bytes(100_000))))
        for _ in range(20):
            assert channel.unary_unary("/test/Echo")(b"x", timeout=10) == b"x"


def test_compressed_reply_is_smaller_on_the_wire(server: Server) -> None:
    fields = b"\x83\x86\x00\x05:path\x0e/test/Compress\x00\x0ccontent-type\x10application/grpc"
    fields += b"\x00\x14grpc-accept-encoding\x04gzip"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(
            frames.PREFACE
            + frames.settings({})
            + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, fields)
            + frames.frame(frames.DATA, frames.END_STREAM, 1, message(b"a" * 10_000))
        )
        received = b""
        while b"grpc-status" not in received:
            received += connection.recv(4096)
    assert len(received) < 1000
    start = received.index(gzip.compress(b"")[:2])
    assert (
        gzip.decompress(received[start : start + int.from_bytes(received[start - 4 : start], "big")])
        == b"a" * 10_000
    )


@pytest.mark.parametrize(
    ("owner", "function", "text"),
    [
        (inflation.Inflater, "step", "The server failed to decompress the message; its log says why"),
        (compression, "gzip", "the server failed to compress the response; its log says why"),
    ],
)
def test_a_call_is_answered_whose_message_cannot_be_compressed_on_a_thread(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    function: str,
    text: str,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(owner, function, fail)
    with grpc.insecure_channel(
        f"127.0.0.1:{server.port}", UNLIMITED, compression=grpc.Compression.Gzip
    ) as channel:
        call = channel.unary_unary("/test/Compress")
        with pytest.raises(grpc.RpcError) as raised:
            call(os.urandom(100_000) + bytes(1 << 20), timeout=60)
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert raised.value.details() == text
    assert "/test/Compress" in caplog.text
    assert "unforeseen" in caplog.text
