"""What is done each second goes on after failures, and ends between two times."""

import asyncio

import pytest

from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import invalid
from tests.hosting.control.fakes import on_loop


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


def test_one_that_never_began_is_stopped() -> None:
    @on_loop
    async def run() -> None:
        async def tick() -> None:
            raise AssertionError

        service = EachSecond("tidying", tick)
        assert not service.has_begun
        await service.stop()

    run()
