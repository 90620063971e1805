"""When a worker that ended is started again: at once if it had served; if not, ever later."""

import asyncio

from halimede.core.clock import MILLISECOND, SECOND, Clock

FIRST_DELAY = 100 * MILLISECOND
LONGEST_DELAY = 10 * SECOND
GOOD_SERVICE = 60 * SECOND
"""A worker that lasted so long owes nothing to those before it."""


class RestartPolicy:
    """The restarts of one instance. Times are the clock's, in nanoseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delay = 0
        self._last_start = clock.now()

    def next_start(self, served: bool = False) -> int:
        """The time to start the next worker, now that one has ended or could not be started. Ask once for each.

        Args:
            served: the one that ended had run at least one batch to its end.
        """
        now = self._clock.now()
        if served or now - self._last_start >= GOOD_SERVICE:
            self._delay = 0
        self._last_start = now + self._delay
        self._delay = min(max(FIRST_DELAY, 2 * self._delay), LONGEST_DELAY)
        return self._last_start

    async def wait(self, served: bool = False) -> None:
        """Until the next worker is to be started, now that one has ended or could not be started."""
        when = self.next_start(served)
        if when <= self._clock.now():
            return
        due = asyncio.Event()
        timer = self._clock.call_at(when, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()
