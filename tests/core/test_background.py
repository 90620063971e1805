"""Tasks that nobody waits for: none ends unheard."""

import ast
import asyncio
import logging
from pathlib import Path

import pytest

import halimede
from halimede.core import background
from halimede.core.errors import UnavailableError
from tests.support.waiting import wait_until_async


async def fail() -> None:
    raise ValueError("unforeseen")


def test_a_failure_is_logged_with_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    tasks: set[asyncio.Task[None]] = set()

    async def run() -> None:
        task = background.start("counting sheep", fail(), tasks)
        assert tasks == {task}
        await asyncio.wait([task])

    asyncio.run(run())
    assert tasks == set()
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "counting sheep failed")
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "unforeseen"


def test_neither_the_end_nor_a_cancellation_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        done = background.start("nothing", asyncio.sleep(0))
        cancelled = background.start("waiting", asyncio.Event().wait())  # type: ignore[arg-type]
        await done
        cancelled.cancel()
        await asyncio.wait([cancelled])

    asyncio.run(run())
    assert caplog.records == []


def test_work_that_is_kept_is_started_again_until_it_returns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE_S", 0.0)
    failures = [ValueError("unforeseen"), MemoryError()]
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if failures:
            raise failures.pop(0)

    async def run() -> None:
        tasks: set[asyncio.Task[None]] = set()
        await background.keep("counting sheep", work, tasks)
        assert tasks == set()

    asyncio.run(run())
    assert begun == 3
    assert caplog.messages == ["counting sheep failed; it is started again in 0 s"] * 2
    [first, _] = caplog.records
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "unforeseen"


def test_the_pause_before_kept_work_is_started_again_grows(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE_S", 0.001)
    failures = [ValueError()] * 4

    async def work() -> None:
        if failures:
            raise failures.pop()

    async def run() -> None:
        await background.keep("work", work)

    asyncio.run(run())
    pauses = [message.split()[-2] for message in caplog.messages]
    assert pauses == ["0.001", "0.002", "0.004", "0.008"]


def test_kept_work_that_is_cancelled_is_not_started_again(caplog: pytest.LogCaptureFixture) -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    async def run() -> None:
        task = background.keep("work", work)
        await wait_until_async(lambda: begun)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert begun == 1
    assert caplog.records == []


def test_only_unforeseen_errors_of_a_task_that_was_left_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for error in (UnavailableError("told"), ValueError("unforeseen"), None):
            task = loop.create_future()
            if error is None:
                task.cancel()
            else:
                task.set_exception(error)
            background.log_unforeseen("loading", task)

    asyncio.run(run())
    assert caplog.messages == ["loading failed"]


HEARD = {
    "api/models.py": "its callback answers who asked",
    "bench/worker.py": "a client's connection; the loop logs what is not foreseen",
    "cli/process.py": "the server's start and end wait for them",
    "engine/lifecycle/lifecycle.py": "the end of the server waits for them",
    "engine/lifecycle/operations.py": "who asked waits, or `log_unforeseen`",
    "engine/memory/demands.py": "who asked waits, and `log_unforeseen`",
    "engine/memory/room.py": "gathered by who waits for room",
    "frontends/grpc/on_demand.py": "answers the call with any error",
    "frontends/grpc/service.py": "answers the call with any error",
    "frontends/http/answers.py": "answers the exchange with any error",
    "hosting/api/tasks.py": "answers the request with any error",
    "hosting/control/rollout.py": "the step of the rollout waits for them",
    "hosting/control/slot.py": "the slot waits for them",
    "hosting/each_second.py": "logs any error, and is waited for",
    "hosting/store/object_store.py": "waited for, even by who is cancelled",
    "hosting/store/remote_place.py": "gathered",
    "hosting/store/upload_operations.py": "the request waits for it",
    "hosting/substrates/ray/actor.py": "who asks the actor waits for them",
    "hosting/substrates/ray/engine.py": "the call waits for them",
    "hosting/substrates/ray/substrate.py": "waits of events, which do not fail",
    "hosting/transform/exchange.py": "fails the answer that is waited for",
    "hosting/transform/run.py": "the job waits for them",
    "hosting/transform/transformation.py": "the object's writer waits for them",
    "repository/cloud/downloads.py": "gathered",
    "workers/call_server.py": "answers the model with any error",
    "workers/in_server/runtime.py": "answers the model with any error",
}
"""Module that makes tasks by itself → who hears of their failures."""


def test_each_task_is_started_here_or_has_somebody_who_hears_of_its_failure() -> None:
    package = Path(halimede.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if made and node.func.attr in ("create_task", "ensure_future"):  # type: ignore[attr-defined]
                found.add(str(path.relative_to(package)))
    assert found - {"core/background.py"} == HEARD.keys()
