"""Asking a model whether it is ready, by its own `is_ready`."""

import asyncio
from collections.abc import Callable

from halimede_worker.messages import wire

TIMED_OUT = "Timed out waiting for user-defined is_ready() response"


class ReadinessProbe:
    """Asks one worker whether its model is ready. Lives on the event loop.

    There is one call of the model's method at a time. Checks that come while it is under way get its answer, even if
    it was begun by one that no longer waits.
    """

    def __init__(self, send: Callable[[tuple[int, int]], None]) -> None:
        """A probe of the worker to which `send` sends a message."""
        self._send = send
        self._number = 0
        self._answer: asyncio.Future[tuple[bool, str]] | None = None

    async def check(self, timeout_s: float = 5.0) -> tuple[bool, str]:
        """Whether the model is ready, and why not; it is not if it does not say within the time."""
        if self._answer is None:
            self._number += 1
            self._answer = asyncio.get_running_loop().create_future()
            self._send((wire.READY, self._number))
        try:
            return await asyncio.wait_for(asyncio.shield(self._answer), timeout_s)
        except TimeoutError:
            return False, TIMED_OUT

    def answered(self, probe: int, ready: bool, why_not: str) -> None:
        """The worker has answered a probe."""
        if probe == self._number:
            self._settle(ready, why_not)

    def exited(self, reason: str) -> None:
        """The worker has ended; who waits is told why."""
        self._settle(ready=False, why_not=reason)

    def _settle(self, ready: bool, why_not: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_result((ready, why_not))
