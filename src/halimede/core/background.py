"""Tasks that nobody waits for. What ends one by mistake is in the log, with the name of what it did."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

logger = logging.getLogger("halimede")


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


def _log_failure(what: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", what, exc_info=error)
