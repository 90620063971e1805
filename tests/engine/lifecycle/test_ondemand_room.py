"""Models that make room for each other."""

import asyncio
import logging
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.errors import (
    InternalError,
    InvalidArgumentError,
    NotLoadedError,
    OutOfMemoryError,
)
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import World, gone, is_ready, make_world, rows
from tests.engine.lifecycle.ondemand import (
    CONFIG_AS_JSON,
    ON_DEMAND,
    add_all,
    error_of,
    loaded,
    turns,
    until_waits_for_room,
    use,
)
from tests.support.waiting import wait_until_async


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


# Making room


def test_the_model_used_longest_ago_is_evicted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    add_all(world, "abcd")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b", "c", "a", "d")
        assert loaded(lifecycle) == ["a", "c", "d"]
        assert [row for row in rows(lifecycle) if row[0] == "b"] == [("b", "1", "UNAVAILABLE", "unloaded")]
        assert [version.source.name for version in world.open] == ["a", "c", "d"]
        assert lifecycle.memory.evictions == 1
        assert is_ready(lifecycle)
        await use(lifecycle, "c", "b")
        assert loaded(lifecycle) == ["b", "c", "d"]

    with caplog.at_level(logging.INFO, "halimede"):
        world.run(test, ON_DEMAND, model_memory_budget=300)
    assert "evicting 'b' to make room" in caplog.messages


def test_as_many_as_necessary_are_evicted_and_no_more(world: World) -> None:
    add_all(world, "abcd", 50)
    world.add_sized("large", 120)

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b", "c", "d", "large")
        assert loaded(lifecycle) == ["d", "large"]

    world.run(test, ON_DEMAND, model_memory_budget=200)


def test_the_evicted_model_is_closed_before_the_next_is_loaded(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a")
        release = world.block("b")
        waiting = asyncio.create_task(use(lifecycle, "b"))
        await world.begun("b")
        assert world.open == []
        release()
        await waiting

    world.run(test, ON_DEMAND, model_memory_budget=100)


def test_a_model_larger_than_the_budget_is_refused_and_nobody_evicted(world: World) -> None:
    add_all(world, "ab")
    world.add_sized("large", 4 << 20)

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b")
        error = await error_of(use(lifecycle, "large"))
        assert isinstance(error, OutOfMemoryError)
        assert str(error) == (
            "model 'large' needs 4.0 MiB of memory, more than all models may take together (3.0 MiB); "
            "raise --model-memory-budget"
        )
        assert loaded(lifecycle) == ["a", "b"]
        assert [row[0] for row in rows(lifecycle)] == ["a", "b", "large"]
        assert ("large", 1) not in world.loads

    world.run(test, ON_DEMAND, model_memory_budget=3 << 20)


def test_a_model_with_requests_in_flight_is_not_evicted(world: World) -> None:
    add_all(world, "abc")

    async def test(lifecycle: Lifecycle) -> None:
        busy = await use(lifecycle, "a")
        busy.begin()
        await use(lifecycle, "b", "c")
        assert loaded(lifecycle) == ["a", "c"]
        busy.end()
        await use(lifecycle, "b")
        assert loaded(lifecycle) == ["b", "c"]

    world.run(test, ON_DEMAND, model_memory_budget=200)


def test_a_load_waits_until_a_model_is_idle(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        busy = await use(lifecycle, "a")
        busy.begin()
        busy.begin()
        waiting = asyncio.create_task(use(lifecycle, "b"))
        await until_waits_for_room(lifecycle, "b")
        busy.end()
        await turns()
        assert not waiting.done()
        busy.end()
        await waiting
        assert loaded(lifecycle) == ["b"]

    world.run(test, ON_DEMAND, model_memory_budget=100)


def test_a_load_that_nobody_waits_for_any_more_gives_up(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        busy = await use(lifecycle, "a")
        busy.begin()
        first = asyncio.create_task(lifecycle.demand("b", timeout_s=1))
        second = asyncio.create_task(lifecycle.demand("b", timeout_s=2))
        await until_waits_for_room(lifecycle, "b")
        world.clock.advance(SECOND)
        assert "still being loaded after 1 s" in str(await error_of(cast(Any, first)))
        await turns()
        assert lifecycle.memory.room._waiting  # noqa: SLF001 - what is left is seen only inside
        second.cancel()  # its client has left
        await turns()
        assert not lifecycle.memory.room._waiting  # noqa: SLF001 - what is left is seen only inside
        busy.end()
        await use(lifecycle, "b")
        assert loaded(lifecycle) == ["b"]

    world.run(test, ON_DEMAND, model_memory_budget=100)


def test_loads_side_by_side_keep_to_the_budget(world: World) -> None:
    add_all(world, "abcd")
    releases = [world.block(name) for name in "abcd"]

    async def test(lifecycle: Lifecycle) -> None:
        waiting = [asyncio.create_task(use(lifecycle, name)) for name in "abcd"]
        await wait_until_async(lambda: len(world.loads) == 2)
        await turns()
        assert len(world.loads) == 2
        assert lifecycle.memory.ledger.total == 200
        for release in releases:
            release()
        await asyncio.gather(*waiting)
        assert sorted(world.loads) == [(name, 1) for name in "abcd"]
        assert len(loaded(lifecycle)) == 2
        assert len(world.open) == 2

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_a_model_that_takes_more_than_expected_evicts_others_but_not_itself(world: World) -> None:
    add_all(world, "ab")
    world.add_sized("c", 150, files=8)

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b")
        assert (await use(lifecycle, "c")).name == "c"
        assert loaded(lifecycle) == ["b", "c"]
        assert lifecycle.memory.ledger.total == 250

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_what_a_model_took_is_remembered_for_its_next_load(world: World) -> None:
    add_all(world, "ab")
    directory = world.add_sized("c", 150, files=8)

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "c", "a", "b")
        assert loaded(lifecycle) == ["a", "b"]
        release = world.block("c")
        waiting = asyncio.create_task(use(lifecycle, "c"))
        await world.begun("c")
        assert loaded(lifecycle) == ["b"]  # evicted before, not after
        release()
        await waiting
        (directory / "1" / "weights").write_bytes(b"another.")  # another model of that name
        await lifecycle.unload("c")
        await gone(lifecycle)
        await use(lifecycle, "a")
        world.sizes["c"] = 50
        await use(lifecycle, "c")
        assert lifecycle.memory.ledger.total == 250

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_workers_that_grow_are_counted_and_make_others_go(world: World) -> None:
    add_all(world, "abc")
    world.workers["a"] = {7: 60, 8: 40}

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "b", "a")
        assert lifecycle.memory.ledger.total == 200
        world.workers["a"][8] = 190
        world.clock.advance(30 * SECOND)
        await wait_until_async(lambda: loaded(lifecycle) == ["a"])
        await gone(lifecycle)
        assert lifecycle.memory.ledger.total == 250
        world.workers["a"][8] = 100
        world.clock.advance(2 * SECOND)
        await use(lifecycle, "c")
        assert lifecycle.memory.ledger.total == 260

    world.run(test, ON_DEMAND, model_memory_budget=260)


def test_what_a_model_has_reserved_counts_once_whether_it_is_used_or_not(world: World) -> None:
    add_all(world, "ab")
    world.workers["a"] = {7: 60}
    world.reserved["a"] = 90

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a")
        assert lifecycle.memory.ledger.total == 150
        world.workers["a"][7] = 140
        world.clock.advance(2 * SECOND)
        await use(lifecycle, "b", "a")
        assert lifecycle.memory.ledger.total == 250
        world.workers["a"][7] = 170
        world.clock.advance(30 * SECOND)
        await wait_until_async(lambda: loaded(lifecycle) == ["a"])
        await gone(lifecycle)
        assert lifecycle.memory.ledger.total == 170

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_a_model_loaded_with_a_clients_configuration_is_not_evicted(world: World) -> None:
    add_all(world, "abc")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {"config": CONFIG_AS_JSON})
        await use(lifecycle, "b", "c")
        assert loaded(lifecycle) == ["a", "c"]
        assert lifecycle.find("a").config.parameters["k"].string_value == "v"

    world.run(test, ON_DEMAND, model_memory_budget=200)


def test_if_nothing_can_ever_be_evicted_the_load_fails_at_once(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {"config": CONFIG_AS_JSON})
        error = await error_of(use(lifecycle, "b"))
        assert isinstance(error, OutOfMemoryError)
        assert "or cannot be loaded again, or raise --model-memory-budget" in str(error)

    world.run(test, ON_DEMAND, model_memory_budget=150)


def test_a_held_model_is_not_evicted(world: World) -> None:
    add_all(world, "abc")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a")
        release = lifecycle.hold("a")
        await use(lifecycle, "b", "c")
        assert loaded(lifecycle) == ["a", "c"]
        release()
        release()
        await use(lifecycle, "b")
        assert loaded(lifecycle) == ["b", "c"]

    world.run(test, ON_DEMAND, model_memory_budget=200)


def test_a_server_that_stops_ends_the_wait_for_room(world: World) -> None:
    add_all(world, "ab")

    async def run() -> None:
        lifecycle = world.lifecycle(ON_DEMAND, model_memory_budget=100)
        await lifecycle.start()
        busy = await use(lifecycle, "a")
        busy.begin()
        waiting = asyncio.create_task(use(lifecycle, "b"))
        await until_waits_for_room(lifecycle, "b")
        stopping = asyncio.create_task(lifecycle.stop(10))
        assert "stopping" in str(await error_of(cast(Any, waiting)))
        busy.end()
        assert await stopping
        assert world.open == []

    asyncio.run(run())


def test_without_a_budget_models_are_counted_and_stay(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "b")
        assert loaded(lifecycle) == ["a", "b"]
        assert {holding.name: holding.size for holding in lifecycle.memory.ledger} == {"a": 100, "b": 100}

    world.run(test, ON_DEMAND)


# A model that calls others


def test_a_model_that_waits_for_the_one_it_calls_does_not_keep_its_room(world: World) -> None:
    add_all(world, "ab")

    async def test(lifecycle: Lifecycle) -> None:
        caller = await use(lifecycle, "a")
        caller.begin()
        error = await error_of(lifecycle.demand("b", caller="a"))
        assert isinstance(error, OutOfMemoryError)
        caller.end()
        assert loaded(lifecycle) == ["a"]

    world.run(test, ON_DEMAND, model_memory_budget=150)


# Ensembles


def test_an_ensemble_brings_its_models_and_takes_them_with_it(world: World) -> None:
    add_all(world, "abc")
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "e")
        assert loaded(lifecycle) == ["a", "b", "e"]
        await use(lifecycle, "c")
        assert loaded(lifecycle) == ["c"]
        await use(lifecycle, "e")
        assert loaded(lifecycle) == ["a", "b", "e"]

    world.run(test, ON_DEMAND, model_memory_budget=200)


def test_models_of_a_loaded_ensemble_stay(world: World) -> None:
    add_all(world, "abcd")
    world.add_ensemble("e", "a", "b")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "e", "c", "e", "d")
        assert loaded(lifecycle) == ["a", "b", "d", "e"]
        e = await use(lifecycle, "e")
        e.begin()
        waiting = asyncio.create_task(use(lifecycle, "c"))
        assert (await waiting).name == "c"
        assert loaded(lifecycle) == ["a", "b", "c", "e"]
        e.end()

    world.run(test, ON_DEMAND, model_memory_budget=300)


def test_a_model_that_another_ensemble_needs_stays_when_one_is_evicted(world: World) -> None:
    add_all(world, "abcd")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("f", "b", "c")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "e", "f", "d")
        assert loaded(lifecycle) == ["b", "c", "d", "f"]

    world.run(test, ON_DEMAND, model_memory_budget=300)


def test_an_ensemble_that_does_not_fit_fails_at_once_and_leaves_others_alone(world: World) -> None:
    add_all(world, "abcd")
    world.add_ensemble("e", "a", "b", "c")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "d")
        error = await error_of(use(lifecycle, "e"))
        assert isinstance(error, OutOfMemoryError)
        assert str(error).startswith("load failed for model 'e': model '")
        await use(lifecycle, "d")
        assert "d" in loaded(lifecycle)
        await use(lifecycle, "a", "b", "c")
        assert is_ready(lifecycle)

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_ensembles_that_keep_each_other_from_loading_do_so_one_after_the_other(world: World) -> None:
    add_all(world, "abcd")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("f", "c", "d")

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "a", "c")
        releases = [lifecycle.hold(name) for name in "ac"]
        waiting = [asyncio.create_task(use(lifecycle, name)) for name in "ef"]
        await until_waits_for_room(lifecycle, "b", "d")  # each has half of its models
        for release in releases:
            release()
        async with asyncio.timeout(60):
            models = await asyncio.gather(*waiting)
        assert [model.name for model in models] == ["e", "f"]
        assert sorted(name for name, _ in world.loads) in (
            ["a", "a", "b", "c", "d"],
            ["a", "b", "c", "c", "d"],
        )

    world.run(test, ON_DEMAND, model_memory_budget=250)


def test_ensembles_that_share_models_load_side_by_side(world: World) -> None:
    add_all(world, "abc")
    world.add_ensemble("e", "a", "b")
    world.add_ensemble("f", "b", "c")
    world.add_ensemble("g", "e", "f")

    async def test(lifecycle: Lifecycle) -> None:
        names = ["e", "f", "g", "a", "b", "c"]
        models = await asyncio.gather(*(use(lifecycle, name) for name in names))
        assert [model.name for model in models] == names
        assert sorted(world.loads) == [("a", 1), ("b", 1), ("c", 1)]

    world.run(test, ON_DEMAND, model_memory_budget=300)


def test_many_requests_for_models_and_ensembles_all_end_well(world: World) -> None:
    add_all(world, "abcdef")
    world.add_ensemble("ab", "a", "b")
    world.add_ensemble("bcd", "b", "c", "d")
    world.add_ensemble("deep", "ab", "e")
    names = ["a", "b", "c", "d", "e", "f", "ab", "bcd", "deep"]

    async def client(lifecycle: Lifecycle, number: int) -> None:
        for step in range(25):
            model = await use(lifecycle, names[(number * 7 + step * (number + 1)) % len(names)])
            model.begin()
            await turns(number % 5)
            model.end()
            assert lifecycle.memory.ledger.total <= 400

    async def test(lifecycle: Lifecycle) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(client(lifecycle, number) for number in range(12)))
        assert lifecycle.memory.ledger.total == 100 * len(world.open)
        room = lifecycle.memory.room
        assert not [*room._pins, *room._waiting, *room._yielding, *room._calls]  # noqa: SLF001 - what is left is seen only inside

    world.run(test, ON_DEMAND, model_memory_budget=400)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_clients_do_nothing_is_stuck_and_the_budget_is_kept(world: World, seed: int) -> None:
    add_all(world, "abcdef")
    world.add_ensemble("ab", "a", "b")
    world.add_ensemble("bcd", "b", "c", "d")
    world.add_ensemble("deep", "ab", "e")
    names = ["a", "b", "c", "d", "e", "f", "ab", "bcd", "deep"]
    chosen = random.Random(seed)

    async def act(lifecycle: Lifecycle) -> None:
        name, what = chosen.choice(names), chosen.randrange(12)
        if what == 0:
            await lifecycle.unload(name, unload_dependents=chosen.random() < 0.5)
        elif what == 1:
            await lifecycle.load(name, {})
        elif what == 2:
            world.fail(chosen.choice("abcdef"), 1, InternalError("it is broken"))
        elif what == 3:  # a client that leaves
            leaving = asyncio.create_task(use(lifecycle, name))
            await turns(chosen.randrange(15))
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        else:
            model = await use(lifecycle, name)
            model.begin()
            await turns(chosen.randrange(6))
            model.end()

    async def client(lifecycle: Lifecycle) -> None:
        for _ in range(25):
            with suppress(NotLoadedError, InvalidArgumentError):  # unloaded by another client; broken
                await act(lifecycle)
            assert lifecycle.memory.ledger.total <= 400
            world.clock.advance(100 * MILLISECOND)

    async def test(lifecycle: Lifecycle) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(client(lifecycle) for _ in range(10)))
        await wait_until_async(lambda: not lifecycle._operations.under_way)  # of clients that left  # noqa: SLF001 - what is left is seen only inside
        await gone(lifecycle)
        assert lifecycle.memory.ledger.total == 100 * len(world.open)
        room = lifecycle.memory.room
        assert not [*room._pins, *room._waiting, *room._yielding, *room._calls]  # noqa: SLF001 - what is left is seen only inside

    world.run(test, ON_DEMAND, model_memory_budget=400)


# Explicit mode with a budget


def test_explicit_mode_refuses_what_does_not_fit_and_evicts_nobody(world: World) -> None:
    add_all(world, "abc")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        await lifecycle.load("b", {})
        before = rows(lifecycle)
        error = await error_of(lifecycle.load("c", {}))
        assert isinstance(error, OutOfMemoryError)
        assert str(error) == (
            "model 'c' needs 100 bytes of memory, but of the 250 bytes that all models may take together 50 bytes "
            "are free: unload others, or raise --model-memory-budget"
        )
        assert rows(lifecycle) == before
        assert is_ready(lifecycle)
        await lifecycle.unload("a")
        await gone(lifecycle)
        await lifecycle.load("c", {})
        assert loaded(lifecycle) == ["b", "c"]

    world.run(test, model_memory_budget=250)


def test_explicit_mode_gives_up_a_model_that_turns_out_to_be_too_large(world: World) -> None:
    add_all(world, "a")
    world.add_sized("b", 200, files=8)

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("a", {})
        error = await error_of(lifecycle.load("b", {}))
        assert isinstance(error, OutOfMemoryError)
        assert "takes 200 bytes" in str(error)
        assert [version.source.name for version in world.open] == ["a"]
        assert lifecycle.memory.ledger.total == 100
        loads = len(world.loads)
        assert isinstance(await error_of(lifecycle.load("b", {})), OutOfMemoryError)
        assert len(world.loads) == loads  # what it takes is known now

    world.run(test, model_memory_budget=250)


@pytest.mark.parametrize("mode", [ControlMode.EXPLICIT, ON_DEMAND])
def test_out_of_memory_in_a_load_keeps_its_type(world: World, mode: ControlMode) -> None:
    world.add("m", (1, 2))
    world.add_steps("s")
    world.add_ensemble("e", "s")
    world.fail("m", 2, OutOfMemoryError("no memory"))
    world.fail("s", 1, OutOfMemoryError("no memory"))

    async def test(lifecycle: Lifecycle) -> None:
        for name in ("m", "e"):
            error = await error_of(lifecycle.load(name, {}))
            assert type(error) is OutOfMemoryError
            assert "no memory" in str(error)
        assert world.open == []

    world.run(test, mode, load_threads=1)


def test_a_load_that_waits_for_room_keeps_no_other_from_loading(world: World) -> None:
    add_all(world, "ab")
    world.add("free")

    async def test(lifecycle: Lifecycle) -> None:
        busy = await use(lifecycle, "a")
        busy.begin()
        waiting = asyncio.create_task(use(lifecycle, "b"))
        await until_waits_for_room(lifecycle, "b")
        await use(lifecycle, "free")
        assert not waiting.done()
        busy.end()
        await waiting

    world.run(test, ON_DEMAND, model_memory_budget=100, load_threads=1)


def test_workers_are_measured_on_after_it_has_failed_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    add_all(world, "ab")
    world.workers["a"] = {7: 60}

    async def test(lifecycle: Lifecycle) -> None:
        await use(lifecycle, "b", "a")
        failing = world.workers["a"].pop(7)  # nobody knows the process
        world.workers["a"] = Unreadable({7: failing})
        world.clock.advance(30 * SECOND)
        await wait_until_async(lambda: "measuring worker processes failed" in caplog.text)
        world.workers["a"] = {7: 240}
        world.clock.advance(30 * SECOND)
        await wait_until_async(lambda: loaded(lifecycle) == ["a"])
        await gone(lifecycle)

    world.run(test, ON_DEMAND, model_memory_budget=250)


class Unreadable(dict[int, int]):
    """Processes whose memory cannot be told."""

    def __getitem__(self, _: int) -> int:
        raise RuntimeError("unforeseen")
