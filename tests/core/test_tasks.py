"""Tasks that nobody waits for: none ends unheard."""

import asyncio
import gc
import logging
import re
import threading
from pathlib import Path
from typing import IO

import pytest

from halimede.core import tasks
from halimede.core.errors import UnavailableError
from halimede.core.tasks import Tasks
from tests.support.waiting import wait_until_async


async def fail() -> None:
    raise ValueError("unforeseen")


def test_a_failure_is_logged_with_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    owned = Tasks()

    async def run() -> None:
        task = owned.start("counting sheep", fail())
        assert list(owned) == [task]
        await asyncio.wait([task])

    asyncio.run(run())
    assert len(owned) == 0
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "counting sheep failed")
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "unforeseen"


def test_neither_the_end_nor_a_cancellation_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        done = tasks.start("nothing", asyncio.sleep(0))
        cancelled = tasks.start("waiting", asyncio.Event().wait())  # type: ignore[arg-type]
        await done
        cancelled.cancel()
        await asyncio.wait([cancelled])

    asyncio.run(run())
    assert caplog.records == []


def test_work_that_is_kept_is_started_again_until_it_returns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    failures = [ValueError("unforeseen"), MemoryError()]
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if failures:
            raise failures.pop(0)

    async def run() -> None:
        owned = Tasks()
        await owned.forever("counting sheep", work)
        assert len(owned) == 0

    asyncio.run(run())
    assert begun == 3
    assert caplog.messages == ["counting sheep failed; it is started again in 0 s"] * 2
    [first, _] = caplog.records
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "unforeseen"


def test_the_pause_before_kept_work_is_started_again_grows(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.001)
    failures = [ValueError()] * 4

    async def work() -> None:
        if failures:
            raise failures.pop()

    async def run() -> None:
        await tasks.forever("work", work)

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
        task = tasks.forever("work", work)
        await wait_until_async(lambda: begun)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert begun == 1
    assert caplog.records == []


def test_a_cancellation_that_nobody_asked_for_is_a_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_PAUSE_S", 0.0)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            waited_for = asyncio.get_running_loop().create_future()
            waited_for.cancel()
            await waited_for

    async def once() -> None:
        waited_for = asyncio.get_running_loop().create_future()
        waited_for.cancel()
        await waited_for

    async def run() -> None:
        await tasks.forever("counting sheep", work)
        await asyncio.wait([tasks.start("counting a sheep", once())])

    asyncio.run(run())
    assert begun == 2
    assert caplog.messages == [
        "counting sheep failed; it is started again in 0 s",
        "counting a sheep failed",
    ]


def test_the_place_where_a_task_waits_names_all_functions_that_wait() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    async def run() -> None:
        task = tasks.submit(outer())
        await wait_until_async(lambda: "locks.py" in tasks.place_of(task))
        places = r"outer \(test_tasks.py:\d+\) > inner \(test_tasks.py:\d+\) > wait \(locks.py:\d+\)"
        assert re.fullmatch(places, tasks.place_of(task))
        await tasks.cancel(task)
        assert tasks.place_of(task) == ""

    asyncio.run(run())


def test_only_unforeseen_errors_of_a_task_that_was_left_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for error in (UnavailableError("told"), ValueError("unforeseen"), None):
            task = loop.create_future()
            if error is None:
                task.cancel()
            else:
                task.set_exception(error)
            tasks.log_unforeseen("loading", task)

    asyncio.run(run())
    assert caplog.messages == ["loading failed"]


def test_the_end_of_a_block_ends_its_tasks() -> None:
    ended = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def run() -> None:
        async with Tasks() as owned:
            for name in ("a", "b"):
                owned.submit(work(name))
            await asyncio.sleep(0)
        assert len(owned) == 0

    asyncio.run(run())
    assert sorted(ended) == ["a", "b"]


def test_close_ends_what_begins_meanwhile_too() -> None:
    async def run() -> None:
        owned = Tasks()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                owned.start("the last word", asyncio.Event().wait())  # type: ignore[arg-type]

        owned.start("work", work())
        await asyncio.sleep(0)
        await owned.close()
        assert len(owned) == 0

    asyncio.run(run())


def test_work_to_be_finished_goes_on_without_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        owned = Tasks()
        go_on = asyncio.Event()

        async def work() -> None:
            await go_on.wait()
            raise ValueError("unforeseen")

        caller = asyncio.ensure_future(owned.finish("loading", work()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        assert len(owned) == 1
        go_on.set()
        await owned.wait()

    asyncio.run(run())
    assert caplog.messages == ["loading failed"]


def test_the_caller_that_waits_gets_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with pytest.raises(ValueError, match="unforeseen"):
            await Tasks().finish("loading", fail())

    asyncio.run(run())
    assert caplog.records == []


def test_the_first_failure_of_all_ends_the_others(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def give(number: int) -> int:
        return number

    async def run() -> None:
        assert await tasks.all_of(give(number) for number in (1, 2)) == [1, 2]
        assert await tasks.all_of(()) == []
        with pytest.raises(ValueError, match="unforeseen"):
            await tasks.all_of([wait(), fail(), fail()])

    asyncio.run(run())
    gc.collect()
    assert cancelled == [1]
    assert caplog.records == []


def test_the_first_to_end_ends_the_wait_for_others() -> None:
    never = asyncio.Event()

    async def run() -> None:
        await tasks.first_of(never.wait(), asyncio.sleep(0))
        await tasks.first_of(never.wait(), timeout_s=0.001)
        with pytest.raises(ValueError, match="unforeseen"):
            await tasks.first_of(never.wait(), fail())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_what_a_thread_opens_is_closed_if_the_caller_was_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("some")
    begun, go = threading.Event(), threading.Event()
    files: list[IO[str]] = []

    def open_() -> IO[str]:
        begun.set()
        go.wait(30)
        files.append(path.open())
        return files[-1]

    async def run() -> None:
        task = tasks.submit(tasks.opened(open_))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        await asyncio.wait([task])
        assert task.cancelled()
        assert [file.closed for file in files] == [True]

        with await tasks.opened(open_) as file:
            assert file.read() == "some"

        with pytest.raises(FileNotFoundError):
            await tasks.opened(path.with_name("absent").open)

    asyncio.run(run())
