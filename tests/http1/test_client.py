"""Requests of any size and their responses, against a server on a real socket; `call` is in `test_upstream.py`."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from halimede.core import tasks
from halimede.http1.client import CallError, Exchange, RefusedError, call_once
from halimede.http1.upstream import UpstreamPool
from tests.hosting.control.fakes import on_loop
from tests.hosting.instances import FakeInstance, Received, Reply, fake_instance
from tests.support.waiting import wait_until_async

MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[FakeInstance]:
    with fake_instance() as running:
        yield running


def pool_of(server: FakeInstance) -> UpstreamPool:
    return UpstreamPool("127.0.0.1", server.port)


def is_idle(pool: UpstreamPool) -> bool:
    """Whether the pool has a connection that is free."""
    connection = pool.idle()
    if connection is not None:
        pool.free(connection)
    return connection is not None


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_bodies_of_all_kinds_arrive_whole(server: FakeInstance, tmp_path: Path) -> None:
    data = bytes(range(256)) * (5 * MIB // 256) + b"end"
    path = tmp_path / "body"

    @on_loop
    async def run() -> None:
        pool = pool_of(server)
        for size in (0, 1, MIB - 1, MIB, MIB + 1, len(data)):
            path.write_bytes(data[:size])
            with path.open("rb") as file:
                for body in (data[:size], path, file.read):
                    async with Exchange(pool, "POST", "/x", {"A": "b"}, body) as response:
                        assert await response.begun() == 200
                        assert digest(await response.body(len(data))) == digest(data[:size])
        pool.close()

    run()
    assert {(each.method, each.path, each.headers["a"]) for each in server.seen} == {("POST", "/x", "b")}
    lengths = [each.headers.get("content-length") for each in server.seen]
    assert lengths[:3] == ["0", "0", None]  # the last one came in chunks
    assert lengths[-3:] == [str(len(data)), str(len(data)), None]


def test_a_response_that_is_too_large_is_given_up(server: FakeInstance) -> None:
    server.invoke = lambda _: Reply(200, (b"x" * MIB for _ in range(64)))

    @on_loop
    async def run() -> None:
        pool = pool_of(server)
        async with Exchange(pool, "GET", "/x") as response:
            with pytest.raises(CallError, match=f"the response has more than {MIB:,} bytes"):
                await response.body(MIB)
        assert not is_idle(pool)
        async with Exchange(pool, "GET", "/x") as response:
            assert await response.beginning(10) == b"x" * 10
        assert is_idle(pool)  # the rest of it was read
        pool.close()

    run()


def test_a_response_that_nobody_reads_is_not_collected(server: FakeInstance) -> None:
    given = []

    def pieces() -> Iterator[bytes]:
        for number in range(64):
            given.append(number)
            yield b"x" * MIB

    server.invoke = lambda _: Reply(200, pieces())

    @on_loop
    async def run() -> None:
        pool = pool_of(server)
        async with Exchange(pool, "GET", "/x") as response:
            await response.begun()
            first = await response.read()
            assert 0 < len(first) <= 4 * MIB
            await asyncio.sleep(0.3)  # sleeps: a client that goes on reading would have all of it then
            assert len(given) < 40
            rest = 0
            while piece := await response.read():
                rest += len(piece)
            assert len(first) + rest == 64 * MIB
        pool.close()

    run()


def test_a_response_that_comes_before_the_request_is_read_ends_it() -> None:
    asked = []

    def read(size: int) -> bytes:
        asked.append(size)
        return b"x" * size

    def refuse() -> None:
        peer, _ = listener.accept()
        with peer, suppress(ConnectionResetError):
            peer.recv(100)
            peer.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            while peer.recv(MIB):  # until the client leaves
                pass

    @on_loop
    async def run() -> None:
        pool = UpstreamPool("127.0.0.1", listener.getsockname()[1])
        async with Exchange(pool, "POST", "/x", {}, read) as response:
            assert await response.begun() == 413
            assert await response.body(100) == b"no"
        count = len(asked)
        assert not is_idle(pool)
        await asyncio.sleep(0)
        assert len(asked) == count
        pool.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        peer = threading.Thread(target=refuse)
        peer.start()
        run()
        peer.join(60)


def test_a_response_that_takes_too_long_is_given_up(server: FakeInstance) -> None:
    ended = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        assert ended.wait(60)
        yield b"second"

    server.invoke = lambda _: Reply(200, pieces())

    @on_loop
    async def run() -> None:
        pool = pool_of(server)
        async with Exchange(pool, "GET", "/x", timeout_s=0.05) as response:
            with pytest.raises(TimeoutError):
                await response.body(100)
            with pytest.raises(TimeoutError):
                await response.read()
        assert not is_idle(pool)
        ended.set()
        async with Exchange(pool, "GET", "/x", timeout_s=60) as response:
            assert await response.body(100) == b"firstsecond"
        assert is_idle(pool)
        pool.close()

    run()


def test_a_request_that_is_not_taken_in_time_is_given_up() -> None:
    def read(size: int) -> bytes:
        return b"x" * size

    @on_loop
    async def run() -> None:
        pool = UpstreamPool("127.0.0.1", listener.getsockname()[1])
        async with Exchange(pool, "POST", "/x", {}, read, timeout_s=0.05) as response:
            with pytest.raises(TimeoutError):
                await response.begun()
        assert not is_idle(pool)
        pool.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        run()


def test_a_body_that_cannot_be_read_is_the_caller_s_error(server: FakeInstance, tmp_path: Path) -> None:
    def broken(_: int) -> bytes:
        raise ValueError("it is broken")

    @on_loop
    async def run() -> None:
        pool = pool_of(server)
        for body, error in ((broken, ValueError), (tmp_path / "absent", FileNotFoundError)):
            async with Exchange(pool, "POST", "/x", {}, body) as response:
                with pytest.raises(error):
                    await response.begun()
            assert not is_idle(pool)
        pool.close()

    run()
    assert server.seen == []


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"x" * 32 * MIB)

    @on_loop
    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))  # nobody reads what is sent to it
        pool = UpstreamPool("127.0.0.1", listener.getsockname()[1])
        async with Exchange(pool, "POST", "/x", {}, path) as response:
            await wait_until_async(lambda: response._connection.write_paused, "a full socket")  # noqa: SLF001
            path.write_bytes(b"x")
            response._connection.resume_writing()  # noqa: SLF001 - as if the server had read some
            with pytest.raises(OSError, match="shorter than it was"):
                await response.begun()
        pool.close()
        listener.close()

    run()


def test_whoever_is_cancelled_leaves_no_connection(server: FakeInstance) -> None:
    gate = threading.Event()

    def hang(_: Received) -> Reply:
        assert gate.wait(60)
        return Reply()

    server.invoke = hang

    @on_loop
    async def run() -> None:
        pool = pool_of(server)

        async def ask() -> None:
            async with Exchange(pool, "GET", "/x") as response:
                await response.begun()

        task = tasks.submit(ask())
        await wait_until_async(lambda: server.seen, "the request")
        await tasks.cancel(task)
        assert task.cancelled()
        assert not is_idle(pool)
        gate.set()
        pool.close()

    run()


def test_a_server_that_is_not_there() -> None:
    with fake_instance() as gone:
        pass

    @on_loop
    async def run() -> None:
        with pytest.raises(RefusedError, match=r"^it accepts no connection \(.*refused\)$") as raised:
            async with Exchange(pool_of(gone), "GET", "/x"):
                raise AssertionError("nobody listens")
        assert "refused" in raised.value.why
        with pytest.raises(CallError, match="it accepts no connection"):
            await call_once("127.0.0.1", gone.port, "GET", "/ping", 30)

    run()
