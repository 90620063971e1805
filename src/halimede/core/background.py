"""Tasks that nobody waits for. What ends one by mistake is logged, with the name of what the task did."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from halimede.core.errors import HalimedeError

logger = logging.getLogger("halimede")

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
"""Before work is started again after a failure; each failure doubles the pause, unless it came after a longer time."""


def start(
    what: str, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]] | None = None
) -> asyncio.Task[None]:
    """Start a coroutine as a task of the running event loop. An exception that ends the task is logged at once.

    Args:
        what: what the task does, for the log: "watching instance i-1".
        work: the coroutine.
        tasks: a set that contains the task until it has ended, for callers that wait for all tasks or cancel them.
    """
    task = asyncio.get_running_loop().create_task(work)
    if tasks is not None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    task.add_done_callback(partial(_log_failure, what))
    return task


def keep(
    what: str, work: Callable[[], Coroutine[Any, Any, None]], tasks: set[asyncio.Task[None]] | None = None
) -> asyncio.Task[None]:
    """Start work as `start` does, and start it again whenever an exception has ended it.

    Args:
        what: as for `start`.
        work: makes the coroutine. The task ends when a coroutine returns.
        tasks: as for `start`.
    """
    return start(what, _keep(what, work), tasks)


async def _keep(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    pause = _PAUSE_S
    while True:
        began = loop.time()
        try:
            await work()
            return
        except Exception:
            if loop.time() - began > _LONGEST_PAUSE_S:
                pause = _PAUSE_S
            logger.exception("%s failed; it is started again in %g s", what, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def log_unforeseen(what: str, task: asyncio.Future[Any]) -> None:
    """Log an exception that ended a task and is no `HalimedeError`, as perhaps nobody waits for it any more."""
    if not task.cancelled() and not isinstance(task.exception(), HalimedeError):
        _log_failure(what, task)


def _log_failure(what: str, task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", what, exc_info=error)
