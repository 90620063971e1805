"""What the engine makes of actors and nodes that do not answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.ray import engine as engine_module
from halimede.hosting.substrates.ray.launch import ActorState, Launch, NodeSettings, Shape
from halimede.hosting.substrates.ray.messages import LostError, UnreachableError
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import request_for
from tests.hosting.substrates.ray.fake_ray import NEVER, NODE, FakeRay, dead, engine_on, unavailable
from tests.support.waiting import wait_until_async

REQUEST = request_for("image")
RUNNING = RunningInstance(REQUEST, "10.0.0.2", 4000, node=NODE)


def launch_in(directory: Path) -> Launch:
    return Launch(REQUEST, Shape(0.25), {}, Images(), NodeSettings("host", directory))


# while an instance is started


@pytest.mark.parametrize("method", ["where", "state", "start", "progress"])
@on_loop
async def test_an_actor_that_was_out_of_reach_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    fake = FakeRay()
    fake.answers["start"] = [RUNNING]
    fake.answers[method].insert(0, unavailable())
    engine, _ = engine_on(fake, monkeypatch)
    assert await engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True) == RUNNING
    assert fake.calls[method] == 2
    assert not fake.killed


@pytest.mark.parametrize("method", ["state", "start", "progress"])
@pytest.mark.parametrize("answer", [unavailable(), NEVER], ids=["unavailable", "frozen"])
@on_loop
async def test_a_node_that_goes_while_an_instance_is_started_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, answer: Any
) -> None:
    fake = FakeRay()
    fake.answers["start"] = [RUNNING]
    fake.answers[method] = [answer]
    engine, _ = engine_on(fake, monkeypatch)
    launching = asyncio.create_task(engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True))
    await wait_until_async(lambda: fake.calls[method] > 0 or launching.done())
    fake.nodes[NODE] = False
    with pytest.raises(LostError, match="its node is gone"):
        await launching
    assert fake.killed


@pytest.mark.parametrize("method", ["where", "state", "start", "progress"])
@on_loop
async def test_an_actor_that_dies_while_an_instance_is_started_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    fake = FakeRay()
    fake.answers["start"] = [RUNNING]
    fake.answers[method] = [unavailable(), dead()]
    engine, _ = engine_on(fake, monkeypatch)
    with pytest.raises(LostError):
        await engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True)


@on_loop
async def test_an_actor_that_stays_out_of_reach_though_its_node_is_there_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_UNREACHABLE_S", 0.05)
    fake = FakeRay()
    fake.answers["start"] = [unavailable()]
    engine, _ = engine_on(fake, monkeypatch)
    with pytest.raises(LostError, match="the connection broke"):
        await engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True)
    assert fake.calls["start"] > 1


@on_loop
async def test_what_an_instance_itself_fails_of_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay()
    fake.answers["start"] = [ApiError("ValidationException", "no such program")]
    engine, _ = engine_on(fake, monkeypatch)
    with pytest.raises(ApiError, match="no such program"):
        await engine.launch(launch_in(tmp_path), tmp_path, 1.0, spread=True)
    assert fake.killed


# of instances that run


def taken_over(fake: FakeRay) -> None:
    fake.answers["state"] = [ActorState(REQUEST, Shape(0.25), RUNNING)]


@on_loop
async def test_an_actor_that_was_out_of_reach_for_a_moment_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRay()
    taken_over(fake)
    fake.answers["state"].insert(0, unavailable())
    engine, _ = engine_on(fake, monkeypatch)
    assert (await engine.adopt("i-0", tmp_path, 30.0)).running == RUNNING


@pytest.mark.parametrize(
    ("answer", "error"), [(unavailable(), UnreachableError), (dead(), LostError), (NEVER, LostError)]
)
@on_loop
async def test_whoever_asks_an_actor_that_does_not_answer_is_told_whether_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception]
) -> None:
    fake = FakeRay()
    taken_over(fake)
    fake.answers["fetch"] = [answer]
    engine, _ = engine_on(fake, monkeypatch)
    await engine.adopt("i-0", tmp_path, 30.0)
    asking = asyncio.create_task(engine.ask("i-0", "fetch", "model"))
    await wait_until_async(lambda: fake.calls["fetch"] > 0 or asking.done())
    fake.nodes[NODE] = answer is not NEVER
    with pytest.raises(error):
        await asking
