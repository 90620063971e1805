"""A process that lives no longer than a block of code."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from halimede.core import tasks


@asynccontextmanager
async def child_process(*command: str, **settings: Any) -> AsyncIterator[Process]:
    """Run a program in a session of its own. However the block ends, no process of the session is left then.

    Args:
        command: the program and its arguments.
        settings: further ones of `asyncio.create_subprocess_exec`.

    Raises:
        OSError: it cannot be started.
    """
    # a start that is cancelled may leave a process that nobody has: it is finished, and the process is ended then
    starting = tasks.submit(asyncio.create_subprocess_exec(*command, start_new_session=True, **settings))
    try:
        yield await asyncio.shield(starting)
    finally:
        await asyncio.shield(tasks.submit(_end(starting)))


async def _end(starting: asyncio.Task[Process]) -> None:
    await asyncio.wait([starting])
    if starting.exception() is None:
        process = starting.result()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
