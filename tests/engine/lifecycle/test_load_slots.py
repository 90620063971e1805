import asyncio
from pathlib import Path

import pytest

from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.lifecycle.load_slots import LoadSlots
from tests.engine.lifecycle.fakes import make_world


class Loads:
    """Loads that run until a test lets them end; `running` names those that have a slot."""

    def __init__(self, slots: LoadSlots) -> None:
        self.running: set[str] = set()
        self._slots = slots
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(name))
        await settled()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await settled()

    async def _run(self, name: str) -> None:
        async with self._slots:
            self.running.add(name)
            await self._ends[name].wait()
            self.running.discard(name)


async def settled() -> None:
    """Return when all tasks have gone as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_loads_run_at_once() -> None:
    async def test() -> None:
        loads = Loads(LoadSlots(2))
        for name in "abc":
            await loads.begin(name)
        assert loads.running == {"a", "b"}
        await loads.end("a")
        assert loads.running == {"b", "c"}
        await loads.end("b")
        await loads.end("c")

    asyncio.run(test())


def test_a_load_that_waits_for_another_leaves_it_its_slot() -> None:
    async def test() -> None:
        slots = LoadSlots(1)
        loads = Loads(slots)
        await loads.begin("outer")
        await loads.begin("inner")
        assert loads.running == {"outer"}
        async with slots.stand_aside():
            await settled()
            assert loads.running == {"outer", "inner"}
            await loads.end("inner")
        await loads.begin("next")
        assert loads.running == {"outer"}
        await loads.end("outer")
        assert loads.running == {"next"}
        await loads.end("next")

    asyncio.run(test())


def test_the_number_of_loads_is_kept_after_one_more_has_run() -> None:
    async def test() -> None:
        slots = LoadSlots(1)
        loads = Loads(slots)
        await loads.begin("outer")
        async with slots.stand_aside():
            await loads.begin("other")
        await loads.begin("next")
        assert loads.running == {"outer", "other"}
        await loads.end("other")
        assert loads.running == {"outer"}
        await loads.end("outer")
        assert loads.running == {"next"}
        await loads.begin("last")
        assert loads.running == {"next"}
        await loads.end("next")
        await loads.end("last")

    asyncio.run(test())


def test_a_load_whose_warm_up_takes_long_lets_another_one_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, monkeypatch)
    for name in ("long", "short", "other"):
        world.add(name)
    world.long.add("long")
    ends = {name: world.block(name) for name in ("long", "short")}

    async def test(lifecycle: Lifecycle) -> None:
        long = asyncio.create_task(lifecycle.load("long", {}))
        await world.begun("long")
        short = asyncio.create_task(lifecycle.load("short", {}))
        await world.begun("short")  # which has the only slot now
        other = asyncio.create_task(lifecycle.load("other", {}))
        await settled()
        assert ("other", 1) not in world.loads
        ends["short"]()
        await other
        await short
        assert not long.done()
        ends["long"]()
        await long
        assert [model.name for model in lifecycle.loaded_models()] == ["long", "other", "short"]

    world.run(test, load_threads=1)
