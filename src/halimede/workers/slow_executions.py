"""Executions that take long, or never end: the log says where they are."""

import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Final

from halimede.core import tasks
from halimede.core.clock import SECOND
from halimede.workers.execution_limit import ExecutionLimit
from halimede.workers.host import WorkerName

logger = logging.getLogger("halimede")

SLOW_SECONDS: Final = 30.0
"""An execution that takes longer is logged by default."""


class SlowExecutions:
    """Watches the executions of one instance. Lives on the event loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: WorkerName,
        seconds: float,
        since: Callable[[], int],
        stack: Callable[[], Awaitable[str]],
    ) -> None:
        """Log each execution that takes longer than that once.

        Args:
            loop: the event loop.
            name: the instance.
            seconds: more than 0.
            since: when the execution began that has run longest; 0 if none runs.
            stack: where the instance's Python code is; "" if it cannot tell.
        """
        self._name = name
        self._since = since
        self._stack = stack
        self._limit = ExecutionLimit(loop, seconds, since, self._overdue)

    def begin(self) -> None:
        """An execution begins."""
        self._limit.begin()

    def stop(self) -> None:
        """Watch no more."""
        self._limit.end()

    @property
    def running_s(self) -> float:
        """How long an execution has been running, in seconds; 0 unless that is too long."""
        since = self._since()
        seconds = (monotonic_ns() - since) / SECOND if since else 0.0
        return seconds if seconds >= self._limit.seconds else 0.0

    def _overdue(self) -> None:
        tasks.start(f"logging a slow execution of '{self._name.instance}'", self._log())

    async def _log(self) -> None:
        name, seconds = self._name, self._limit.seconds
        stack = await self._stack()
        logger.warning(
            "execute of '%s' has been running for %g s (instance '%s'):\n%s",
            name.model,
            seconds,
            name.instance,
            stack
            or "  its Python code does not tell where it is: native code may hold the interpreter's lock. The stacks "
            "of its process, if it has one, follow as its standard error",
        )
