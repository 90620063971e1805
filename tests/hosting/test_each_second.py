"""What is done each second goes on after failures, and ends between two times."""

import asyncio
import re

import pytest

from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import invalid
from tests.hosting.control.fakes import on_loop
from tests.support.waiting import wait_until_async


def test_failures_are_logged_and_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [ValueError("unforeseen"), invalid("the disk is full")]

    @on_loop
    async def run() -> None:
        done = asyncio.Event()

        async def tick() -> None:
            if failures:
                raise failures.pop()
            done.set()

        service = EachSecond("tidying", tick, lambda: 0.0)
        service.start()
        await done.wait()
        await service.stop()

    run()
    assert "tidying: the disk is full" in caplog.text
    assert "tidying failed" in caplog.text
    assert "unforeseen" in caplog.text


def test_what_is_under_way_is_done_to_its_end() -> None:
    steps: list[str] = []

    @on_loop
    async def run() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def tick() -> None:
            begun.set()
            await may_end.wait()
            steps.append("done")

        service = EachSecond("tidying", tick, lambda: 0.0)
        service.start()
        await begun.wait()
        stopping = asyncio.ensure_future(service.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        may_end.set()
        await stopping

    run()
    assert steps == ["done"]


def test_what_does_not_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @on_loop
    async def run() -> None:
        may_end = asyncio.Event()

        async def tick() -> None:
            await may_end.wait()

        service = EachSecond("tidying", tick, lambda: 0.0, long_s=0.01)
        service.start()
        await wait_until_async(lambda: len(caplog.messages) > 1)
        may_end.set()
        await service.stop()

    run()
    told = r"tidying takes 0 s already; it waits in _once \(.*\) > tick \(.*\) > wait \(locks.py:\d+\)"
    assert re.fullmatch(told, caplog.messages[0])


def test_what_is_cancelled_by_others_is_done_again(caplog: pytest.LogCaptureFixture) -> None:
    begun = 0

    @on_loop
    async def run() -> None:
        async def tick() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise asyncio.CancelledError

        service = EachSecond("tidying", tick, lambda: 0.0)
        service.start()
        await wait_until_async(lambda: begun > 1)
        await service.stop()

    run()
    assert caplog.messages == ["tidying failed; it is started again in 0.5 s"]


def test_one_that_never_began_is_stopped() -> None:
    @on_loop
    async def run() -> None:
        async def tick() -> None:
            raise AssertionError

        service = EachSecond("tidying", tick)
        assert not service.has_begun
        await service.stop()

    run()
