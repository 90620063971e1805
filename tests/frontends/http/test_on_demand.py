import asyncio
from typing import Any, cast

from halimede.core.errors import InvalidArgumentError
from halimede.engine.engine import Engine
from halimede.frontends.http.on_demand import wait_for_model
from halimede.frontends.http.transport.exchange import Exchange
from halimede.http1.head import Head


class LoadingEngine:
    """One load, which ends when the test says so."""

    def __init__(self) -> None:
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: tuple[str, int, float | None] | None = None
        self.waiting = False

    async def demand(self, name: str, version: int, timeout_s: float | None) -> None:
        self.asked = (name, version, timeout_s)
        self.waiting = True
        try:
            await asyncio.shield(self.loaded)
        finally:
            self.waiting = False


def exchange() -> Exchange:
    return Exchange(cast(Any, None), Head("POST", "/v2/models/a/infer", {}, (), "1.1"), memoryview(b""))


async def begin() -> "tuple[LoadingEngine, Exchange, asyncio.Task[bool]]":
    """A request that waits."""
    engine, asking = LoadingEngine(), exchange()
    waiting = asyncio.create_task(wait_for_model(cast(Engine, engine), asking, "a", 3, 5.0))
    await asyncio.sleep(0)
    assert engine.waiting
    assert engine.asked == ("a", 3, 5.0)
    return engine, asking, waiting


def test_the_request_goes_on_when_its_model_is_loaded() -> None:
    async def test() -> None:
        engine, asking, waiting = await begin()
        engine.loaded.set_result(None)
        assert await waiting
        assert asking.on_disconnect is None

    asyncio.run(test())


def test_the_wait_ends_when_the_client_leaves_and_the_load_goes_on() -> None:
    async def test() -> None:
        engine, asking, waiting = await begin()
        assert asking.on_disconnect is not None
        asking.on_disconnect()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not engine.waiting
        assert not engine.loaded.cancelled()

    asyncio.run(test())


def test_why_the_model_cannot_be_loaded_is_passed_on() -> None:
    async def test() -> None:
        engine, _, waiting = await begin()
        engine.loaded.set_exception(InvalidArgumentError("it is broken"))
        await asyncio.wait([waiting])
        assert str(waiting.exception()) == "it is broken"

    asyncio.run(test())
