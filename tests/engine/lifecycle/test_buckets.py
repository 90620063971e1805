"""Buckets that are away while the server starts, and answer again."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from halimede.core.clock import SECOND
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import ControlMode
from halimede.repository.cloud.failures import AwayError
from halimede.repository.cloud.repositories import CloudRepositories
from tests.engine.lifecycle.fakes import World, is_ready, make_world, rows
from tests.support.waiting import wait_until_async


class FakeMirror:
    """A directory whose bucket may be away; names are known once it has answered.

    Attributes:
        is_away: it does not answer.
        bucket: the names of its models.
        gate: it answers while this is set.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self.location = SimpleNamespace(url="s3://bucket/repository")
        self.directory = directory
        self.listers = ThreadPoolExecutor(1)
        self.fetchers = ThreadPoolExecutor(1)
        self.away: AwayError | None = None
        self.is_away = False
        self.bucket: list[str] = []
        self._world = world
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()

    def update_names(self) -> None:
        """Have the models of the bucket in the directory."""
        self.asked += 1
        assert self.gate.wait(60)
        if self.is_away:
            self.away = AwayError("cannot list the bucket")
            raise self.away
        self.away = None
        for name in self.bucket:
            if not (self.directory / name).exists():  # it may be loaded just now
                self._world.add(name)

    check = update_all = update_names

    def update(self, _name: str, *, fetched_suffices: bool) -> None:
        """The same as for all models."""
        self.update_names()

    def fetch(self, *_: Any, fetched_suffices: bool) -> bool:
        """All of it is there."""
        return True

    def has_any_fetched(self) -> bool:
        """Nothing was fetched earlier."""
        return False

    def mark_used(self, _name: str) -> None:
        """Nobody asks for it."""

    def close(self) -> None:
        """End the threads."""
        self.listers.shutdown()
        self.fetchers.shutdown()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def mirror(world: World) -> Iterator[FakeMirror]:
    """The mirror that is the world's repository."""
    found = FakeMirror(world, world.repository)
    yield found
    found.close()


def run(world: World, mirror: FakeMirror, test: Any, mode: ControlMode, **settings: Any) -> None:
    cloud = SimpleNamespace(mirrors=[mirror], stop=lambda: None, close=mirror.close)
    world.run(test, mode, cloud=cast(CloudRepositories, cloud), exit_on_error=False, **settings)


@pytest.mark.parametrize(
    ("mode", "wanted", "loaded"),
    [
        (ControlMode.NONE, (), ["a", "b"]),
        (ControlMode.EXPLICIT, ("b",), ["b"]),
        (ControlMode.EXPLICIT, (), []),
    ],
)
def test_what_was_to_be_loaded_at_start_is_loaded_once_the_bucket_answers(
    world: World, mirror: FakeMirror, mode: ControlMode, wanted: tuple[str, ...], loaded: list[str]
) -> None:
    mirror.is_away, mirror.bucket = True, ["a", "b"]

    async def test(lifecycle: Lifecycle) -> None:
        assert not is_ready(lifecycle)
        assert world.loads == []
        asked = mirror.asked
        world.clock.advance(15 * SECOND)
        await wait_until_async(lambda: mirror.asked > asked)
        assert not is_ready(lifecycle)
        mirror.is_away = False
        world.clock.advance(15 * SECOND)
        await wait_until_async(lambda: is_ready(lifecycle))
        assert [model.name for model in lifecycle.loaded_models()] == loaded

    run(world, mirror, test, mode, load_models=wanted)


def test_a_model_that_was_put_into_the_bucket_is_listed(world: World, mirror: FakeMirror) -> None:
    async def test(lifecycle: Lifecycle) -> None:
        assert rows(lifecycle) == []
        mirror.bucket = ["a"]
        await lifecycle.refresh()
        assert rows(lifecycle) == [("a", None, "", "")]

    run(world, mirror, test, ControlMode.EXPLICIT)


def test_a_bucket_that_stays_away_is_told_once(
    world: World, mirror: FakeMirror, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.bucket = ["a"]
    caplog.set_level(logging.INFO)

    async def test(lifecycle: Lifecycle) -> None:
        mirror.is_away = True
        await lifecycle.refresh()
        await lifecycle.refresh()
        text = "failed to poll model repository 's3://bucket/repository': cannot list the bucket"
        assert caplog.messages.count(text) == 1
        assert [model.name for model in lifecycle.loaded_models()] == ["a"]
        mirror.is_away = False
        await lifecycle.refresh()
        await lifecycle.refresh()
        assert caplog.messages.count("model repository 's3://bucket/repository' can be listed again") == 1
        mirror.is_away = True
        await lifecycle.refresh()
        assert caplog.messages.count(text) == 2

    run(world, mirror, test, ControlMode.NONE)


def test_an_unload_that_comes_while_a_load_asks_the_bucket_comes_after_the_load(
    world: World, mirror: FakeMirror
) -> None:
    mirror.bucket = ["m"]

    async def test(lifecycle: Lifecycle) -> None:
        await lifecycle.load("m", {})
        await lifecycle.unload("m")
        mirror.is_away = True
        await lifecycle.refresh()
        mirror.is_away = False
        mirror.gate.clear()
        asked = mirror.asked
        calls = [asyncio.create_task(lifecycle.load("m", {}))]
        await wait_until_async(lambda: mirror.asked > asked)
        calls.append(asyncio.create_task(lifecycle.unload("m")))
        await asyncio.sleep(0)
        mirror.gate.set()
        await asyncio.gather(*calls)
        await wait_until_async(lambda: rows(lifecycle) == [("m", "1", "UNAVAILABLE", "unloaded")])

    run(world, mirror, test, ControlMode.EXPLICIT)
