"""Processes that live no longer than a block: also if whoever starts one is cancelled at any moment."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from halimede.core import tasks
from halimede.core.child_process import child_process
from tests.support.waiting import wait_until_async

SLEEPS = "import time; time.sleep(1000)"
HAS_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); {SLEEPS}"


def running(mark: str) -> list[str]:
    """The processes whose environment has this."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_is_left_whenever_the_block_is_cancelled(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    environment = {**os.environ, "HALIMEDE_TEST_MARK": str(tmp_path)}

    async def use() -> None:
        async with child_process(sys.executable, "-c", SLEEPS, env=environment) as process:
            await process.wait()

    async def run() -> None:
        for turns in range(12):
            task = tasks.submit(use())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert running(str(tmp_path)) == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())


def test_the_children_of_the_process_end_with_it(tmp_path: Path) -> None:
    environment = {**os.environ, "HALIMEDE_TEST_MARK": str(tmp_path)}

    async def run() -> None:
        async with child_process(sys.executable, "-c", HAS_CHILD, env=environment):
            await wait_until_async(lambda: len(running(str(tmp_path))) == 2, "the child's child")
        await wait_until_async(lambda: not running(str(tmp_path)), "the end of both")

    asyncio.run(run())


def test_a_program_that_is_not_there() -> None:
    async def run() -> None:
        with pytest.raises(FileNotFoundError):
            async with child_process("/absent"):
                raise AssertionError("it cannot be started")

    asyncio.run(run())
