"""The event loop of the simulation: asyncio's own, but that it never waits."""

import asyncio
import time

import pytest

from benchmarks.cluster.virtual_loop import MIDNIGHT, StalledError, VirtualLoop, run


def test_hours_pass_without_waiting() -> None:
    async def sleep(loop: VirtualLoop) -> list[str]:
        order: list[str] = []
        loop.call_later(7200, order.append, "later")
        loop.call_later(3600, order.append, "sooner")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5400):
                await asyncio.sleep(86_400)  # sleeps: in virtual time
        order.append("timeout")
        await asyncio.sleep(86_400 - loop.time())  # sleeps: in virtual time
        assert loop.wall_time() == pytest.approx(MIDNIGHT + 86_400)
        assert loop.now_ns() == pytest.approx(86_400e9)
        return order

    began = time.monotonic()
    assert run(sleep) == ["sooner", "timeout", "later"]
    assert time.monotonic() - began < 60


def test_what_belongs_on_another_thread_takes_no_time() -> None:
    async def work(loop: VirtualLoop) -> None:
        assert await asyncio.to_thread(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        assert loop.time() == 0

    run(work)


def test_waiting_for_what_never_comes_is_an_error() -> None:
    async def wait(loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError):
        run(wait)
