"""Which instances of an earlier process of the host are taken over."""

from pathlib import Path

import pytest

from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.ray.launch import ActorState, Shape
from halimede.hosting.substrates.ray.messages import Event
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import Exits, request_for
from tests.hosting.substrates.ray.engines import FakeEngine, substrate_with
from tests.support.waiting import wait_until_async


def running(number: int) -> RunningInstance:
    return RunningInstance(request_for("image", number=number), "10.0.0.2", 4000 + number, node="one")


def state_of(instance: RunningInstance, exit_code: int | None = None) -> ActorState:
    return ActorState(instance.request, Shape(0.25), instance, exit_code)


@on_loop
async def test_only_what_runs_and_was_not_told_to_end_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    engine.actors = {
        "i-0": ActorState(running(0).request, Shape(0.25)),  # it was told to end, or is being started
        "i-1": state_of(running(1)),
        "i-2": state_of(running(2), exit_code=0),
        "i-3": ActorState(),
    }
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        found = await substrate.start(Exits().__setitem__)
        assert [each.request.id for each in found] == ["i-1"]
        assert sorted(engine.terminated()) == ["i-0", "i-2", "i-3"]


@on_loop
async def test_an_instance_that_ended_while_there_was_no_engine_tells_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, exits = FakeEngine(), Exits()
    engine.actors = {"i-1": state_of(running(1))}
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        await substrate.start(exits.__setitem__)
        engine.actors = {"i-1": state_of(running(1), exit_code=3)}
        engine.lose()
        before = len(engine.calls)
        await wait_until_async(lambda: ("adopt", "i-1") in [(n, *a[:1]) for n, a in engine.calls[before:]])
        assert not exits
        engine.tell(Event("exited", ("i-1", 3)))
        assert exits == {"i-1": "it ended with status 3"}
