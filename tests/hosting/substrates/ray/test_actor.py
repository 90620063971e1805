"""The actor of an instance, in this process: no cluster is needed."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from halimede.hosting.errors import ApiError
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.processes import marked
from halimede.hosting.substrates.ray import actor as actor_module
from halimede.hosting.substrates.ray.actor import InstanceActor
from halimede.hosting.substrates.ray.launch import Launch, NodeSettings, Shape
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import (
    answers,
    lives,
    needs_namespaces,
    request_for,
    text_of,
    write_serve,
)
from tests.hosting.substrates.ray.keepers import waiting_keepers
from tests.support.waiting import wait_until_async

pytestmark = needs_namespaces

IGNORES = "signal.signal(signal.SIGTERM, lambda *_: open(os.environ['ASKED'], 'w').write('asked\\n'))"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no Ray."""
    context = SimpleNamespace(get_node_id=lambda: "node")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(actor_module, "_PATIENCE_S", 0.05)


@asynccontextmanager
async def actor_in(directory: Path) -> AsyncIterator[InstanceActor]:
    """An actor, of which nothing is left afterwards."""
    actor = InstanceActor(NodeSettings("host", directory / "nodes"))
    try:
        yield actor
    finally:
        await actor.stop(0.0, 0)
        assert not marked(directory)
        instances = directory / "nodes" / "host" / "node" / "instances"
        assert not list(instances.glob("*"))
        await wait_until_async(lambda: not waiting_keepers(instances / "i-0"))


def launch_of(directory: Path, script: str = "") -> Launch:
    request = request_for(write_serve(directory), script, environment={"ASKED": str(directory / "asked")})
    return Launch(request, Shape(1), {}, Images(), NodeSettings("host", directory / "nodes"))


@on_loop
async def test_an_instance_that_was_told_to_end_is_not_there_to_be_taken_over(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        running = await actor.start(launch_of(tmp_path, IGNORES))
        await answers(running)
        assert (await actor.state()).running == running
        stopping = asyncio.create_task(actor.stop(1000.0, 0))
        assert await text_of(tmp_path / "asked") == "asked"
        assert lives(running.pid)
        state = await actor.state()
        assert state.request == running.request
        assert state.running is None
        stopping.cancel()
        await asyncio.wait([stopping])


@on_loop
async def test_an_instance_that_has_ended_says_how_to_whoever_wants_to_take_it_over(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        running = await actor.start(launch_of(tmp_path))
        await answers(running)
        assert (await actor.state()).exit_code is None
        os.kill(running.pid, signal.SIGKILL)
        await wait_until_async(lambda: not lives(running.pid))
        assert (await actor.events(0)).exit_code == -signal.SIGKILL
        assert (await actor.state()).exit_code == -signal.SIGKILL


@on_loop
async def test_the_exit_of_an_instance_that_was_told_to_end_is_told(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        running = await actor.start(launch_of(tmp_path, "print('there', flush=True)"))
        await answers(running)
        position = len((await actor.events(0)).log)
        telling = asyncio.create_task(actor.events(position))
        await actor.stop(30.0, position)
        assert (await telling).exit_code == -signal.SIGTERM


@on_loop
async def test_a_second_stop_does_nothing_but_wait_less(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        running = await actor.start(launch_of(tmp_path, IGNORES + "; print('there', flush=True)"))
        await answers(running)
        patient = asyncio.create_task(actor.stop(1000.0, 0))
        assert await text_of(tmp_path / "asked") == "asked"
        rests = [await actor.stop(0.0, 0), await patient]
        assert sorted(rests) == [b"", b"there\n"]
        assert await actor.stop(30.0, 0) == b""
        assert not list((tmp_path / "nodes" / "host" / "node" / "ports").iterdir())


@on_loop
async def test_an_instance_that_is_to_end_while_it_is_started_leaves_nothing(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        starting = asyncio.create_task(actor.start(launch_of(tmp_path)))
        directory = tmp_path / "nodes" / "host" / "node" / "instances" / "i-0"
        await wait_until_async(lambda: bool(waiting_keepers(directory)))
        await actor.stop(0.0, 0)
        await starting
        assert not marked(tmp_path)
        with pytest.raises(ApiError, match="the instance is being ended"):
            await InstanceActor.fetch(actor, "m", None, 1.0)  # type: ignore[arg-type]  # no offer is looked at


@on_loop
async def test_an_instance_that_two_engines_start_is_started_once(tmp_path: Path) -> None:
    async with actor_in(tmp_path) as actor:
        launch = launch_of(tmp_path)
        first = asyncio.create_task(actor.start(launch))
        second = asyncio.create_task(actor.start(launch))
        running = await first
        assert await second == running
        await answers(running)
        assert list(marked(tmp_path)) == [running.pid]


class Store:
    """What a node has of archives (`NodeStore`).

    Attributes:
        under_way: how many fetches are.
        held: what was taken and not given back.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.gate = threading.Event()
        self.under_way: list[int] = []
        self.held: list[object] = []

    def __call__(self, *_: object) -> "Store":
        return self

    def take(self, *_: object) -> object:
        self.under_way.append(1)
        assert self.gate.wait(60)
        self.under_way.pop()
        taken = SimpleNamespace(directory=self.directory, disk_bytes=7)
        taken.release = lambda: self.held.remove(taken)
        self.held.append(taken)
        return taken


@on_loop
async def test_an_archive_that_two_engines_want_is_fetched_by_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    store = Store(model)
    monkeypatch.setattr(actor_module, "NodeStore", store)
    offer = Offer("http://127.0.0.1:1/", 7, "etag", "m.tar.gz")
    async with actor_in(tmp_path) as actor:
        running = await actor.start(launch_of(tmp_path))
        fetches = [asyncio.create_task(actor.fetch("m", offer, 60.0)) for _ in range(2)]
        await wait_until_async(lambda: bool(store.under_way))
        await actor.where()
        assert len(store.under_way) == 1
        store.gate.set()
        assert await asyncio.gather(*fetches) == [7, 7]
        assert len(store.held) == 1
        assert (running.models / "m" / "model").is_dir()
        await actor.remove("m")
        assert not store.held
