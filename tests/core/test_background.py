"""Tasks that nobody waits for: none ends unheard."""

import asyncio
import logging

import pytest

from halimede.core import background


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
