"""What looks after instances on Ray, and fails in a way that nobody foresaw: it is logged, and goes on."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.ray import engine as engine_module
from halimede.hosting.substrates.ray import engine_process as engine_process_module
from halimede.hosting.substrates.ray import substrate as substrate_module
from halimede.hosting.substrates.ray.engine_process import EngineLostError, EngineProcess
from halimede.hosting.substrates.ray.launch import ActorState, Events, Shape
from halimede.hosting.substrates.ray.messages import Answer, Call, Event
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import Exits, request_for
from tests.hosting.substrates.ray.engines import FakeEngine, substrate_with
from tests.hosting.substrates.ray.fake_ray import NEVER, NODE, FakeRay, engine_on
from tests.support.waiting import wait_until_async

REQUEST = request_for("image")
RUNNING = RunningInstance(REQUEST, "10.0.0.3", 4000, node=NODE)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is looked at, and tried again, at once."""
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    for name in ("_LOOK_S", "_REQUEST_S", "_RECONNECTING_S"):
        monkeypatch.setattr(substrate_module, name, 0.001)


class FailingEngine(FakeEngine):
    """An engine some of whose calls fail.

    Attributes:
        failures: name of a call → what its next calls fail by, in turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, list[Exception]] = {}

    async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        result = await super().call(name, *arguments, **named)
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        return result

    def count(self, name: str) -> int:
        """How often something was called."""
        return sum(called == name for called, _ in self.calls)


@on_loop
async def test_nodes_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FailingEngine()
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        engine.failures["nodes"] = [RuntimeError("unforeseen")]
        await substrate.start(Exits().__setitem__)
        await wait_until_async(lambda: not engine.failures["nodes"])
        before = engine.count("nodes")
        await wait_until_async(lambda: engine.count("nodes") > before)
    assert "looking at the nodes of the Ray cluster failed; it is started again in 0 s" in caplog.messages


@pytest.mark.parametrize("call", ["nodes", "actors"])
@on_loop
async def test_the_host_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    engine = FailingEngine()
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        monkeypatch.setattr(substrate_module, "_LOOK_S", 60.0)  # so that only the connection asks for nodes
        await substrate.start(Exits().__setitem__)
        engine.failures[call] = [RuntimeError("unforeseen")]
        engine.lose()
        engine.launched = [RUNNING]
        assert await substrate.launch(REQUEST) == substrate.instances()[0]  # which waits for the connection
        assert not engine.failures[call]
    assert "connecting to the Ray cluster again failed; it is started again in 0 s" in caplog.messages


@on_loop
async def test_ray_is_asked_for_nodes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    launching = asyncio.Event()

    class WaitingEngine(FailingEngine):
        async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
            if name == "launch":
                self.tell(Event("waiting", (REQUEST.id, "there is no room")))
                await launching.wait()
            return await super().call(name, *arguments, **named)

    engine = WaitingEngine()
    engine.launched = [RUNNING]
    engine.failures["request_resources"] = [RuntimeError("unforeseen")]
    async with substrate_with(tmp_path, engine, monkeypatch) as substrate:
        await substrate.start(Exits().__setitem__)
        task = asyncio.create_task(substrate.launch(REQUEST))
        await wait_until_async(lambda: engine.count("request_resources") >= 2)
        launching.set()
        await task
    assert "asking Ray for nodes failed; it is started again in 0 s" in caplog.messages


_ENGINE = """
import asyncio, socket, sys
from halimede.hosting.substrates.ray.messages import Answer, Event, receive, send

async def main():
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(sys.argv[1])))
    await receive(reader)
    send(writer, Event("connected", ("node", "10.0.0.1")))
    while True:
        call = await receive(reader)
        if call.name == "tell":
            send(writer, Event("exited", call.arguments))  # and no answer
        else:
            send(writer, Answer(call.number, call.name))

try:
    asyncio.run(main())
except (asyncio.IncompleteReadError, ConnectionError):
    pass
"""


@on_loop
async def test_an_engine_that_is_not_heard_any_more_is_lost_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "small_engine.py").write_text(_ENGINE)
    monkeypatch.setattr(engine_process_module, "_PROGRAM", "small_engine")
    lost: list[str] = []

    def fail(event: Event) -> None:
        raise RuntimeError(f"unforeseen: {event.name}")

    process = EngineProcess(fail, lambda: lost.append("lost"))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    await process.start("auto", "namespace", tmp_path / "log", {"PYTHONPATH": path})
    try:
        assert await process.call("nodes") == "nodes"
        with pytest.raises(EngineLostError):
            await process.call("tell", "i-1", 0)
        assert lost == ["lost"]
        with pytest.raises(EngineLostError):  # at once: nobody would hear the answer
            await process.call("nodes")
    finally:
        await process.close()  # which fails by nothing that ended the reading
    assert "reading what Ray's process tells failed" in caplog.messages
    [record] = [each for each in caplog.records if each.exc_info is not None]
    assert str(record.exc_info[1]) == "unforeseen: exited"  # type: ignore[index]


@on_loop
async def test_an_answer_that_cannot_be_sent_is_an_error_for_who_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeRay()
    engine, told = engine_on(fake, monkeypatch)
    monkeypatch.setattr(engine, "actors", lambda: _given(threading.Lock()))  # which nobody can pickle
    engine.answer(Call(7, "actors", (), {}))
    await wait_until_async(lambda: told.messages)
    [answer] = told.messages
    assert isinstance(answer, Answer)
    assert answer.number == 7
    assert isinstance(answer.error, ApiError)
    assert "cannot pickle" in answer.error.message
    assert "the answer to actors cannot be sent" in caplog.messages


async def _given(value: Any) -> Any:
    return value


@on_loop
async def test_the_end_of_an_instance_is_noticed_while_its_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeRay()
    fake.answers["state"] = [ActorState(REQUEST, Shape(0.25), RUNNING)]
    fake.answers["events"] = [
        Events(b"line\n", None, None),
        RuntimeError("unforeseen"),
        Events(b"line\n", None, 1),
        NEVER,
    ]
    engine, told = engine_on(fake, monkeypatch)
    caplog.set_level("INFO", "halimede")

    def fail(log: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine_module, "_append", fail)
    await engine.adopt(REQUEST.id, tmp_path, 1.0)
    await wait_until_async(lambda: told.events("exited"))
    assert told.events("exited") == [(REQUEST.id, 1)]
    assert f"instance {REQUEST.id}: [Errno 28] No space left on device" in caplog.messages
    assert f"instance {REQUEST.id} cannot be watched; it is tried again" in caplog.messages
    await engine.terminate(REQUEST.id, 0.0)
