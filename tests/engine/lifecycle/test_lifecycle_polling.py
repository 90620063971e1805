import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from halimede.core.clock import SECOND
from halimede.core.errors import InternalError, NotFoundError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.lifecycle.model_loader import ModelLoader
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.polling import Polling
from halimede.engine.lifecycle.version_states import ModelRecord
from halimede.engine.settings import ControlMode
from tests.engine.lifecycle.fakes import CONFIG, World, gone, is_ready, make_world, rows
from tests.support.waiting import wait_until_async


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


async def settle(lifecycle: Lifecycle) -> None:
    """Two looks: the second one acts on what the first one saw."""
    await lifecycle.poll()
    await lifecycle.poll()


def test_added_changed_and_deleted_models_are_noticed(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        assert await lifecycle.model_ready("m")
        world.add("added")
        await settle(lifecycle)
        assert await lifecycle.model_ready("added")
        assert world.loads == [("m", 1), ("added", 1)]
        directory = world.add("added", (2,))
        await settle(lifecycle)
        assert lifecycle.versions("added") == [2]
        assert world.loads == [("m", 1), ("added", 1), ("added", 2)]
        shutil.rmtree(directory)
        await settle(lifecycle)
        await gone(lifecycle)
        assert rows(lifecycle) == [("m", "1", "READY", "")]
        with pytest.raises(NotFoundError, match="'added' has no available versions"):
            lifecycle.find("added")
        assert is_ready(lifecycle)
        world.add("added")
        await settle(lifecycle)
        assert lifecycle.versions("added") == [1]
        assert world.loads.count(("m", 1)) == 1

    world.run(test, ControlMode.POLL)


def test_models_of_a_repository_that_is_away_are_served_and_the_others_looked_at(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    other = world.directory / "other"
    away = world.directory / "away"
    (other / "far" / "1").mkdir(parents=True)
    (other / "far" / "config.pbtxt").write_text(CONFIG)
    world.others.append(other)
    world.add("near")

    async def test(lifecycle: Lifecycle) -> None:
        other.rename(away)
        world.add("added")
        (world.repository / "far" / "1").mkdir(parents=True)
        await settle(lifecycle)
        assert f"failed to poll model repository '{other}': No such file or directory" in caplog.messages
        assert [model.name for model in lifecycle.loaded_models()] == ["added", "far", "near"]
        (world.repository / "far" / "1").rmdir()
        (world.repository / "far").rmdir()
        await settle(lifecycle)
        away.rename(other)
        await settle(lifecycle)
        assert sorted(world.loads) == [("added", 1), ("far", 1), ("near", 1)]
        shutil.rmtree(other / "far")
        await settle(lifecycle)
        await gone(lifecycle)
        assert [model.name for model in lifecycle.loaded_models()] == ["added", "near"]

    world.run(test, ControlMode.POLL)


def test_nothing_happens_while_nothing_changes(world: World) -> None:
    world.add("m")
    world.add("broken")
    world.fail("broken", 1, InternalError("no"), InternalError("never"))

    async def test(lifecycle: Lifecycle) -> None:
        for _ in range(4):
            await lifecycle.poll()
        assert sorted(world.loads) == [("broken", 1), ("m", 1)]
        assert not is_ready(lifecycle)

    world.run(test, ControlMode.POLL)


def test_copy_that_is_still_being_written_is_left_alone(world: World) -> None:
    directory = world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.poll()
        for size in range(1, 5):
            (directory / "1" / "weights").write_bytes(b"x" * size)
            (world.repository / "new").mkdir(exist_ok=True)
            (world.repository / "new" / f"part{size}").write_bytes(b"")
            await lifecycle.poll()
        assert world.loads == [("m", 1)]
        shutil.rmtree(world.repository / "new")
        world.add("new")
        await lifecycle.poll()
        assert sorted(world.loads) == [("m", 1), ("m", 1)]
        await lifecycle.poll()
        assert sorted(world.loads) == [("m", 1), ("m", 1), ("new", 1)]

    world.run(test, ControlMode.POLL)


def test_model_replaced_between_two_looks_keeps_serving(world: World) -> None:
    directory = world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        old = lifecycle.find("m")
        await lifecycle.poll()
        shutil.rmtree(directory)
        await lifecycle.poll()
        assert lifecycle.find("m") is old
        world.add("m")
        (directory / "1" / "weights").write_bytes(b"x")
        await lifecycle.poll()
        assert lifecycle.find("m") is old
        await lifecycle.poll()
        assert lifecycle.find("m") is not old

    world.run(test, ControlMode.POLL)


def test_broken_change_keeps_the_old_version_and_mends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    directory = world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        old = lifecycle.find("m")
        (directory / "config.pbtxt").write_text("nonsense {")
        await settle(lifecycle)
        await settle(lifecycle)
        assert lifecycle.find("m") is old
        assert caplog.text.count("Poll failed for model directory 'm': failed to read text proto from") == 1
        world.fail("m", 1, InternalError("broken"))
        world.add("m", config="max_batch_size: 1")
        await settle(lifecycle)
        assert lifecycle.find("m") is old
        world.add("m", config="max_batch_size: 22")
        await settle(lifecycle)
        assert lifecycle.find("m").config.max_batch_size == 22

    with caplog.at_level(logging.INFO, "halimede"):
        world.run(test, ControlMode.POLL)


def test_name_that_comes_up_twice_is_unavailable_until_it_is_unique(world: World) -> None:
    world.add("m")
    second = world.directory / "second"
    second.mkdir()
    world.others.append(second)
    reason = "model appears in two or more repositories"

    async def test(lifecycle: Lifecycle) -> None:
        (second / "m").mkdir()
        await settle(lifecycle)
        await gone(lifecycle)
        assert rows(lifecycle) == [("m", None, "UNAVAILABLE", reason)]
        assert is_ready(lifecycle)
        with pytest.raises(NotFoundError):
            lifecycle.find("m")
        (second / "m").rmdir()
        await settle(lifecycle)
        assert await lifecycle.model_ready("m")
        assert is_ready(lifecycle)

    world.run(test, ControlMode.POLL)


def test_repository_that_cannot_be_read_unloads_nothing(world: World) -> None:
    world.add("m")

    async def test(lifecycle: Lifecycle) -> None:
        away = world.repository.rename(world.directory / "away")
        for _ in range(3):
            await lifecycle.poll()
        assert await lifecycle.model_ready("m")
        away.rename(world.repository)
        await settle(lifecycle)
        assert world.loads == [("m", 1)]

    world.run(test, ControlMode.POLL)


def test_long_load_holds_up_no_other_model(world: World) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        world.add("slow")
        await lifecycle.poll()
        release = world.block("slow")
        polling = asyncio.create_task(lifecycle.poll())
        await world.begun("slow")
        world.add("quick")
        await settle(lifecycle)
        assert await lifecycle.model_ready("quick")
        assert not await lifecycle.model_ready("slow")
        assert world.loads.count(("slow", 1)) == 1
        release()
        await polling
        assert await lifecycle.model_ready("slow")

    world.run(test, ControlMode.POLL)


def test_looks_follow_each_other_at_the_set_interval(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    async def look(self: Polling) -> None:
        looks.append(world.clock.now() // SECOND)

    monkeypatch.setattr(Polling, "look", look)

    async def test(lifecycle: Lifecycle) -> None:
        for _ in range(20):
            world.clock.advance(1 * SECOND)
            await asyncio.sleep(0)
        assert looks == [7, 14]

    world.run(test, ControlMode.POLL, repository_poll_secs=7)
    world.clock.advance(100 * SECOND)
    assert looks == [7, 14]


@pytest.mark.parametrize(("mode", "seconds"), [(ControlMode.POLL, 0), (ControlMode.NONE, 1)])
def test_no_polling_unless_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: ControlMode, seconds: int
) -> None:
    async def look(self: Polling) -> None:
        raise AssertionError("it looked")

    monkeypatch.setattr(Polling, "look", look)

    async def test(lifecycle: Lifecycle) -> None:
        world.clock.advance(100 * SECOND)
        await asyncio.sleep(0)

    world.run(test, mode, repository_poll_secs=seconds)


def test_a_look_that_fails_in_an_unforeseen_way_is_logged_and_the_next_one_sees_to_all_models(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("unforeseen")]
    set_catalog = ModelTable.set_catalog

    def fail(table: ModelTable, catalog: dict[str, bool]) -> None:
        if failures:
            raise failures.pop()
        set_catalog(table, catalog)

    async def test(lifecycle: Lifecycle) -> None:
        monkeypatch.setattr(ModelTable, "set_catalog", fail)
        world.add("added")
        world.clock.advance(SECOND)
        await wait_until_async(lambda: not failures)
        for _ in range(2):
            world.clock.advance(SECOND)
            await wait_until_async(lambda: not lifecycle._polling.under_way)  # noqa: SLF001 - a look shows nowhere else
        assert await lifecycle.model_ready("added")
        assert "polling the model repositories failed" in caplog.messages

    world.run(test, ControlMode.POLL, repository_poll_secs=1)


def test_a_model_whose_load_fails_in_an_unforeseen_way_hinders_no_other_and_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("unforeseen"), RuntimeError("unforeseen")]
    load = ModelLoader.load

    async def fail(loader: ModelLoader, record: ModelRecord, *more: Any) -> None:
        if failures and record.name != "good":
            raise failures.pop()
        await load(loader, record, *more)

    async def test(lifecycle: Lifecycle) -> None:
        monkeypatch.setattr(ModelLoader, "load", fail)
        for name in ("a", "good", "z"):
            world.add(name)
        await settle(lifecycle)
        assert [model.name for model in lifecycle.loaded_models()] == ["good"]
        assert {"Poll failed for model 'a'", "Poll failed for model 'z'"} <= set(caplog.messages)
        await lifecycle.poll()
        assert [model.name for model in lifecycle.loaded_models()] == ["a", "good", "z"]

    world.run(test, ControlMode.POLL)
