import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from halimede.core.errors import HalimedeError
from halimede.engine.calls.model_control import Handler, ModelControl
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from halimede_worker.messages import wire
from tests.engine.lifecycle.fakes import FakeModel, World, gone, make_world, rows

P = "Failed to process the request for model 'caller_0', message: "
POLLED = "failed to load 'other', failed to poll from model repository"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


class Callers:
    """Models that call, by name; `loading` names those that are being loaded."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.loading: set[str] = set()
        self._control = ModelControl(lifecycle)

    async def load(
        self, caller: str, name: str, config: str = "", files: Mapping[str, bytes] | None = None
    ) -> None:
        assert await self._handlers(caller)[wire.LOAD_MODEL]((wire.LOAD_MODEL, name, config, files)) is None

    async def unload(self, caller: str, name: str) -> None:
        assert await self._handlers(caller)[wire.UNLOAD_MODEL]((wire.UNLOAD_MODEL, name, False)) is None

    async def is_ready(self, caller: str, name: str, version: str = "") -> object:
        return await self._handlers(caller)[wire.MODEL_READY]((wire.MODEL_READY, name, version))

    def _handlers(self, caller: str) -> Mapping[int, Handler]:
        return self._control.call_handlers(caller, f"{caller}_0", lambda: caller in self.loading)


def test_a_model_loads_another(world: World) -> None:
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        await Callers(lifecycle).load("caller", "other")
        assert rows(lifecycle) == [("other", "1", "READY", "")]

    world.run(test)


def test_a_model_loads_another_from_files(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        config = '{"backend": "identity"}'
        await Callers(lifecycle).load("caller", "other", config, {"file:1/model.py": b"\x00\xff"})
        assert cast(FakeModel, lifecycle.find("other")).loaded.files == ["model.py"]

    world.run(test)


@pytest.mark.parametrize(
    ("name", "config", "files", "why"),
    [
        ("other", "", None, "model not found in any model repository"),
        ("../other", "", None, "'../other'"),
        ("other", "", {"file:1/model.py": b""}, f"{POLLED}: files need a configuration beside them"),
        (
            "other",
            "{}",
            {"1/model.py": b""},
            f"{POLLED}: unexpected file '1/model.py', expected 'file:<path>'",
        ),
        ("other", "{", {"file:1/model.py": b""}, "other"),
    ],
)
def test_a_load_that_fails_says_why(
    world: World, name: str, config: str, files: Mapping[str, bytes] | None, why: str
) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(HalimedeError) as caught:
            await Callers(lifecycle).load("caller", name, config, files)
        assert str(caught.value).startswith(P)
        assert why in str(caught.value)

    world.run(test)


def test_models_come_and_go_in_explicit_mode_only(world: World) -> None:
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        for call in (callers.load, callers.unload):
            with pytest.raises(HalimedeError) as caught:
                await call("caller", "other")
            assert (
                str(caught.value) == P + "explicit model load / unload is not allowed if polling is enabled"
            )
        assert await callers.is_ready("caller", "other") is True

    world.run(test, ControlMode.NONE)


def test_an_unload_does_not_wait_for_requests_in_flight(world: World) -> None:
    world.add("other")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        await callers.load("caller", "other")
        model = cast(FakeModel, lifecycle.find("other"))
        model.begin()
        await callers.unload("caller", "other")
        assert await callers.is_ready("caller", "other") is False
        model.end()
        await gone(lifecycle)

    world.run(test)


def test_to_unload_what_there_is_not_is_no_error(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        await Callers(lifecycle).unload("caller", "other")

    world.run(test)


def test_readiness_is_that_of_the_version(world: World) -> None:
    world.add("other", (1, 2), "version_policy { specific { versions: [2] } }")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        await callers.load("caller", "other")
        ready = [
            await callers.is_ready("caller", "other", version) for version in ("", "2", "2.5", "0", "1", "3")
        ]
        assert ready == [True, True, True, False, False, False]
        assert await callers.is_ready("caller", "unknown") is False

    world.run(test)


@pytest.mark.parametrize("version", ["x", "-1", "99999999999999999999"])
def test_a_version_that_is_no_number_is_refused(world: World, version: str) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        with pytest.raises(HalimedeError) as caught:
            await Callers(lifecycle).is_ready("caller", "other", version)
        text = str(caught.value)
        assert text.startswith(f"{P}failed to get model version from specified version string '{version}'")
        assert text.endswith("version should be an integral value > 0")

    world.run(test)


def test_a_model_may_load_itself_again_once_it_is_loaded(world: World) -> None:
    world.add("caller")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        await callers.load("caller", "caller")
        first = lifecycle.find("caller")
        (world.repository / "caller" / "config.pbtxt").write_text('backend: "identity"\nmax_batch_size: 4\n')
        await callers.load("caller", "caller")
        assert lifecycle.find("caller") is not first

    world.run(test)


# While the caller is being loaded itself


def test_a_model_that_is_being_loaded_loads_another_on_one_load_thread(world: World) -> None:
    world.add("caller")
    world.add("other")
    go_on = world.block("caller")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        callers.loading.add("caller")
        loading = asyncio.create_task(lifecycle.load("caller", {}))
        await world.begun("caller")
        await callers.load("caller", "other")
        assert rows(lifecycle) == [("caller", "1", "LOADING", ""), ("other", "1", "READY", "")]
        go_on()
        await loading

    world.run(test, load_threads=1)


def test_a_model_that_is_being_loaded_waits_for_one_that_is_in_the_queue(world: World) -> None:
    world.add("caller")
    world.add("other")
    go_on = world.block("caller")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        callers.loading.add("caller")
        loading = asyncio.create_task(lifecycle.load("caller", {}))
        await world.begun("caller")
        in_queue = asyncio.Event()
        lifecycle.on_progress.append(lambda name, *_: in_queue.set() if name == "other" else None)
        queued = asyncio.create_task(lifecycle.load("other", {}))
        await in_queue.wait()
        assert ("other", 1) not in world.loads
        await callers.load("caller", "other")
        await queued
        go_on()
        await loading

    world.run(test, load_threads=1)


def test_a_model_that_is_being_loaded_cannot_load_or_unload_itself(world: World) -> None:
    world.add("caller")
    go_on = world.block("caller")

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        callers.loading.add("caller")
        loading = asyncio.create_task(lifecycle.load("caller", {}))
        await world.begun("caller")
        for call in (callers.load, callers.unload):
            with pytest.raises(HalimedeError) as caught:
                await call("caller", "caller")
            assert str(caught.value) == P + "model 'caller' is being loaded; it cannot load or unload itself"
        go_on()
        await loading

    world.run(test)


def test_models_that_wait_for_each_other_to_be_loaded_are_refused(world: World) -> None:
    names = ("a", "b", "c")
    go_on = {}
    for name in names:
        world.add(name)
        go_on[name] = world.block(name)

    async def test(lifecycle: Lifecycle) -> None:
        callers = Callers(lifecycle)
        callers.loading.update(names)
        loads = [asyncio.create_task(lifecycle.load(name, {})) for name in names]
        for name in names:
            await world.begun(name)
        waits = [
            asyncio.create_task(callers.load("a", "b")),
            asyncio.create_task(callers.load("b", "c")),
        ]
        await asyncio.sleep(0)
        for call in (callers.load, callers.unload):
            with pytest.raises(HalimedeError) as caught:
                await call("c", "a")
            assert str(caught.value) == (
                "Failed to process the request for model 'c_0', message: model 'c' is being loaded and cannot "
                "wait for 'a', which itself waits for 'c' to be loaded"
            )
        for name in reversed(names):
            go_on[name]()
        await asyncio.gather(*waits, *loads)
        await callers.load("c", "a")  # nobody waits any more

    world.run(test, load_threads=3)
