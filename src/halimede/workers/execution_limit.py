"""How long an execution of a worker may take before its process is ended."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from time import monotonic_ns

from halimede.core.clock import SECOND


class ExecutionLimit:
    """Watches the executions of one worker, on one timer. Lives on the event loop.

    The timer goes on when an execution ends, as there may be thousands before it has run out.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        seconds: float,
        since: Callable[[], int],
        overdue: Callable[[], None],
    ) -> None:
        """A limit of so many seconds.

        Args:
            loop: the event loop.
            seconds: how long an execution may take.
            since: when the execution began that has run longest; 0 if none runs.
            overdue: told that one takes too long.
        """
        self.seconds = seconds
        self._loop = loop
        self._since = since
        self._overdue = overdue
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        """An execution begins."""
        if self._timer is None:
            self._timer = self._loop.call_later(self.seconds, self._look)

    def end(self) -> None:
        """Nothing runs any more, or is to be watched."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        since = self._since()
        if not since:
            return
        left = self.seconds - (monotonic_ns() - since) / SECOND
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._overdue()
