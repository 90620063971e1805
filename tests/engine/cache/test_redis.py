"""The cache in Redis, against a real server: on a Unix socket, killed, stopped, and with a password."""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.core.clock import MILLISECOND, SECOND, LoopClock, VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import InvalidArgumentError
from halimede.core.ports import free_port
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.bypass import FIRST_PAUSE_NS
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.opening import open_cache
from halimede.engine.cache.redis import RedisCache
from halimede.engine.settings import RedisCacheSettings
from tests.support.certificates import make_certificate
from tests.support.redis_server import RedisServer, redis_server

ENTRY = Entry.of(InferResponse({"OUT": Tensor(FP32, (2,), b"12345678")}, {"p": 1}), set(), 1 << 30)
KEY = bytes(32)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as started:
        yield started


class Cache(RedisCache):
    """The cache, whose timeouts are over when the test says so, and whose answers can be waited for."""

    def __init__(self, host: str | Path, port: int = 0, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.clock.advance(SECOND)
        super().__init__(
            RedisCacheSettings(str(host), port, **settings), self.clock, asyncio.get_running_loop()
        )

    def look_up(self, key: bytes = KEY) -> "asyncio.Future[Entry | None]":
        """What is found."""
        future: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
        self.find(key, future.set_result)
        return future

    async def settled(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def run(scenario: Callable[..., Awaitable[None]], *args: object, **settings: Any) -> None:
    async def whole() -> None:
        cache = Cache(*args, **settings)  # type: ignore[arg-type]
        try:
            await scenario(cache)
        finally:
            await cache.close()

    asyncio.run(whole())


async def keep(cache: Cache, key: bytes = KEY, entry: Entry = ENTRY) -> None:
    cache.insert(key, entry)
    await cache.settled()


def test_what_was_inserted_is_found_also_by_another_server(server: RedisServer) -> None:
    async def first(cache: Cache) -> None:
        assert await cache.look_up() is None
        await keep(cache)

    async def second(cache: Cache) -> None:
        entry = await cache.look_up()
        assert entry is not None
        response = entry.response()
        assert bytes(response.outputs["OUT"].data) == b"12345678"
        assert response.parameters == {"p": 1}
        assert await cache.look_up(bytes([1] * 32)) is None

    run(first, server.socket)
    run(second, server.socket)


def test_many_look_ups_at_once_share_the_connections(server: RedisServer) -> None:
    async def scenario(cache: Cache) -> None:
        await keep(cache)
        entries = await asyncio.gather(*(cache.look_up() for _ in range(200)))
        assert all(entry is not None for entry in entries)

    run(scenario, server.socket, pool_size=2, timeout_ms=60_000)


def test_a_server_that_is_not_there_is_left_out_and_tried_again(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cache: Cache) -> None:
        await keep(cache)
        server.kill()
        for _ in range(3):
            assert await cache.look_up() is None
        server.start()
        assert cache.look_up().done()  # it is not even tried
        cache.clock.advance(FIRST_PAUSE_NS)
        assert await cache.look_up() is None
        await keep(cache)
        assert await cache.look_up() is not None

    with caplog.at_level(logging.INFO, "halimede"):
        run(scenario, server.socket, timeout_ms=60_000)
    lost, back = (record.getMessage() for record in caplog.records)
    where = f"the response cache at redis {server.socket}"
    assert lost.startswith(f"{where} failed, and is left out until it works again: ")
    assert back == f"{where} works again"


def test_that_there_is_no_server_is_said_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        cache = open_cache(RedisCacheSettings("127.0.0.1", free_port()), LoopClock(loop), loop)
        assert isinstance(cache, RedisCache)
        await cache.begin()
        await cache.close()

    with caplog.at_level(logging.WARNING, "halimede"):
        asyncio.run(scenario())
    (record,) = caplog.records
    assert "failed, and is left out until it works again" in record.getMessage()


def test_no_look_up_takes_longer_than_the_timeout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen(100)  # takes connections, and never says a word

        async def scenario(cache: Cache) -> None:
            waiting = [cache.look_up() for _ in range(20)]
            await asyncio.sleep(0)
            cache.clock.advance(49 * MILLISECOND)
            assert not any(each.done() for each in waiting)
            cache.clock.advance(MILLISECOND)
            assert [each.result() for each in waiting] == [None] * 20
            assert cache.look_up().done()
            await cache.settled()

        run(scenario, path, timeout_ms=50)
    (record,) = caplog.records
    assert record.getMessage().endswith("no answer within 50 ms")


@pytest.mark.parametrize(
    ("flags", "credentials", "reason"),
    [
        (("--requirepass", "right-one"), {"password": "wrong-one"}, "invalid username-password pair"),
        (("--requirepass", "right-one"), {}, "HELLO must be called with the client already authenticated"),
        ((), {"user": "nobody", "password": "wrong-one"}, "invalid username-password pair"),
    ],
)
def test_a_server_that_refuses_the_password_or_the_user_is_no_cache_to_begin_with(
    tmp_path: Path, flags: tuple[str, ...], credentials: dict[str, str], reason: str
) -> None:
    async def scenario(cache: Cache) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await cache.begin()
        assert caught.value.message.startswith(f"Failed to initialize RedisCache: {reason}")
        assert "-one" not in caught.value.message

    with redis_server(tmp_path, *flags) as server:
        run(scenario, server.socket, timeout_ms=60_000, **credentials)


def test_a_wrong_password_is_told_without_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cache: Cache) -> None:
        assert await cache.look_up() is None

    async def right(cache: Cache) -> None:
        await keep(cache)
        assert await cache.look_up() is not None

    with redis_server(tmp_path, "--requirepass", "right-one") as server:
        run(scenario, server.socket, password="wrong-one", timeout_ms=60_000)
        (record,) = caplog.records
        assert "wrong-one" not in record.getMessage()
        assert "password" in record.getMessage()
        caplog.clear()
        run(right, server.socket, password="right-one", timeout_ms=60_000)
        assert not caplog.records


def test_the_server_is_spoken_to_over_tls_with_a_certificate_of_ones_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    client, client_key = make_certificate(tmp_path, "client")
    both = tmp_path / "both.crt"
    both.write_text(certificate.read_text() + client.read_text())
    port = free_port()
    flags = [
        "--tls-port",
        port,
        "--tls-cert-file",
        certificate,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        both,
    ]

    async def trusted(cache: Cache) -> None:
        await keep(cache)
        assert await cache.look_up() is not None

    async def strange(cache: Cache) -> None:
        assert await cache.look_up() is None

    with redis_server(tmp_path, *map(str, flags)):
        run(
            trusted, "127.0.0.1", port,
            tls=True, tls_ca=str(certificate), tls_cert=str(client), tls_key=str(client_key), timeout_ms=60_000,
        )  # fmt: skip
        assert not caplog.records
        run(strange, "127.0.0.1", port, tls=True, timeout_ms=60_000)
    (record,) = caplog.records
    assert "certificate verify failed" in record.getMessage()


def test_a_full_server_is_read_from_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    large = Entry.of(InferResponse({"OUT": Tensor(FP32, (1 << 20,), bytes(4 << 20))}), set(), 1 << 30)

    async def scenario(cache: Cache) -> None:
        await keep(cache)
        for number in range(1, 8):
            await keep(cache, bytes([number] * 32), large)
        assert await cache.look_up() is not None
        assert await cache.look_up() is not None

    with redis_server(tmp_path, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction") as server:
        run(scenario, server.socket, timeout_ms=60_000)
    (record,) = caplog.records
    assert record.getMessage().startswith("inserting into the response cache at redis ")


def test_entries_that_are_of_no_use_are_not_found(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cache: Cache) -> None:
        server.ask("SET", f"halimede:response:{KEY.hex()}", "rubbish")
        assert await cache.look_up() is None
        assert "the response cache has an entry that is of no use" in caplog.text
        await keep(cache)
        assert await cache.look_up() is not None
        server.ask("DEL", f"halimede:response:{KEY.hex()}")
        server.ask("RPUSH", f"halimede:response:{KEY.hex()}", "a list")
        assert await cache.look_up() is None

    run(scenario, server.socket, timeout_ms=60_000)


def test_responses_that_wait_to_be_inserted_are_bounded(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.engine.cache.redis._MAX_UNSENT", 3 * ENTRY.size)

    async def scenario(cache: Cache) -> None:
        for number in range(10):
            cache.insert(bytes([number] * 32), ENTRY)
        await cache.settled()
        found = [await cache.look_up(bytes([number] * 32)) for number in range(10)]
        assert [number for number, entry in enumerate(found) if entry is not None] == [0, 1, 2]
        await keep(cache, bytes([9] * 32))
        assert await cache.look_up(bytes([9] * 32)) is not None

    run(scenario, server.socket, timeout_ms=60_000)


def test_without_the_library_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    async def scenario() -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            Cache("localhost", 6379)
        assert caught.value.message == (
            "--cache-config=redis needs the Python package redis: pip install 'halimede[cache-redis]'"
        )

    asyncio.run(scenario())
