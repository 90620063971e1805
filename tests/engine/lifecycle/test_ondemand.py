"""Models that are loaded when they are asked for."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.errors import (
    InternalError,
    NotFoundError,
    NotLoadedError,
    UnavailableError,
)
from halimede.engine.lifecycle.lifecycle import Lifecycle
from tests.engine.lifecycle.fakes import World, gone, is_ready, make_world, rows
from tests.engine.lifecycle.ondemand import ON_DEMAND, add_all, error_of, loaded, turns, use


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


# Loading


def test_nothing_is_loaded_at_start_and_the_server_is_ready(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        assert is_ready(lifecycle)
        assert loaded(lifecycle) == []
        assert rows(lifecycle) == [("a", None, "", ""), ("b", None, "", "")]
        assert not await lifecycle.model_ready("a")
        assert world.loads == []
        with pytest.raises(NotFoundError, match="'c' is not found"):
            await lifecycle.model_ready("c")

    world.run(test, ON_DEMAND)


def test_models_named_at_start_are_loaded(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        assert loaded(lifecycle) == ["b"]

    world.run(test, ON_DEMAND, load_models=("b",))


def test_first_request_loads_its_model(world: World) -> None:
    world.add("m", (1, 2), "version_policy { all {} }")

    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(NotLoadedError) as caught:
            lifecycle.find("m", 1)
        assert (caught.value.name, caught.value.version) == ("m", 1)
        assert (await lifecycle.demand("m", 1)).version == 1
        model = await lifecycle.demand("m")
        assert model.version == 2
        assert lifecycle.find("m") is model
        assert lifecycle.versions("m") == [1, 2]
        assert await lifecycle.model_ready("m", 1)
        with pytest.raises(NotFoundError, match="'m' version 3 is not found") as missing:
            lifecycle.find("m", 3)
        assert not isinstance(missing.value, NotLoadedError)

    world.run(test, ON_DEMAND)


def test_a_model_that_is_nowhere_is_not_found(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        for name in ("nowhere", "a..b"):
            with pytest.raises(NotLoadedError):
                lifecycle.find(name)
        error = await error_of(lifecycle.demand("nowhere"))
        assert type(error) is NotFoundError
        assert str(error) == "Request for unknown model: 'nowhere' is not found"
        error = await error_of(lifecycle.demand("../outside"))
        assert str(error) == "Request for unknown model: '../outside' is not found"
        assert rows(lifecycle) == []

    world.run(test, ON_DEMAND)


def test_a_model_added_later_is_found(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        await error_of(lifecycle.demand("m"))
        world.add("m")
        await use(lifecycle, "m")
        assert loaded(lifecycle) == ["m"]

    world.run(test, ON_DEMAND)


def test_concurrent_first_requests_cause_one_load(world: World) -> None:
    add_all(world, "a")
    release = world.block("a")

    async def test(lifecycle: Lifecycle) -> None:
        waiting = [asyncio.create_task(use(lifecycle, "a")) for _ in range(10)]
        await world.begun("a")
        waiting += [asyncio.create_task(use(lifecycle, "a")) for _ in range(10)]
        await turns()
        release()
        models = await asyncio.gather(*waiting)
        assert set(models) == {await use(lifecycle, "a")}
        assert world.loads == [("a", 1)]

    world.run(test, ON_DEMAND)


def test_each_waits_no_longer_than_its_deadline_while_the_load_goes_on(world: World) -> None:
    add_all(world, "a")
    release = world.block("a")

    async def test(lifecycle: Lifecycle) -> None:
        short = asyncio.create_task(lifecycle.demand("a", timeout_s=0.2))
        long = asyncio.create_task(lifecycle.demand("a", timeout_s=2))
        await world.begun("a")
        world.clock.advance(200 * MILLISECOND)
        error = await error_of(cast(Any, short))
        assert isinstance(error, UnavailableError)
        assert str(error) == "model 'a' is still being loaded after 0.2 s; the load goes on"
        assert not long.done()
        release()
        assert (await long).name == "a"
        assert world.loads == [("a", 1)]

    world.run(test, ON_DEMAND)


def test_without_a_deadline_a_request_waits_as_long_as_the_settings_say(world: World) -> None:
    add_all(world, "a")
    release = world.block("a")

    async def test(lifecycle: Lifecycle) -> None:
        waiting = asyncio.create_task(lifecycle.demand("a"))
        await world.begun("a")
        world.clock.advance(7 * SECOND)
        assert "after 7 s" in str(await error_of(cast(Any, waiting)))
        release()
        await lifecycle.demand("a")

    world.run(test, ON_DEMAND, ondemand_timeout_secs=7)


def test_a_broken_model_fails_its_requests_only_and_is_not_tried_again_at_once(world: World) -> None:
    add_all(world, "ab")
    world.fail("a", 1, *(InternalError("it is broken") for _ in range(3)))

    async def test(lifecycle: Lifecycle) -> None:
        outcomes = await asyncio.gather(*(error_of(use(lifecycle, "a")) for _ in range(3)))
        text = "load failed for model 'a': version 1 is at UNAVAILABLE state: Internal: it is broken;\n"
        assert [str(error) for error in outcomes] == [text] * 3
        assert (await use(lifecycle, "b")).name == "b"
        assert is_ready(lifecycle)
        assert ("a", "1", "UNAVAILABLE", "Internal: it is broken") in rows(lifecycle)
        assert str(await error_of(use(lifecycle, "a"))) == text
        assert world.loads.count(("a", 1)) == 1

        world.clock.advance(SECOND)
        await error_of(use(lifecycle, "a"))
        assert world.loads.count(("a", 1)) == 2
        world.add_sized("a", 200)  # other files are another attempt
        await error_of(use(lifecycle, "a"))
        assert world.loads.count(("a", 1)) == 3
        world.clock.advance(SECOND)
        assert (await use(lifecycle, "a")).name == "a"

    world.run(test, ON_DEMAND)


def test_clients_load_and_unload_as_well(world: World) -> None:
    add_all(world, "a")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        assert loaded(lifecycle) == ["a"]
        await lifecycle.unload("a")
        await gone(lifecycle)
        assert rows(lifecycle) == [("a", "1", "UNAVAILABLE", "unloaded")]
        await use(lifecycle, "a")
        assert rows(lifecycle) == [("a", "1", "READY", "")]

    world.run(test, ON_DEMAND)


def test_a_request_for_a_stopping_server_is_refused(world: World) -> None:
    add_all(world, "a")

    async def run() -> None:
        lifecycle = world.lifecycle(ON_DEMAND)
        await lifecycle.start()
        assert await lifecycle.stop(10)
        with pytest.raises(UnavailableError, match="stopping"):
            lifecycle.find("a")
        assert "stopping" in str(await error_of(lifecycle.demand("a")))

    asyncio.run(run())
