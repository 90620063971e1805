"""Pauses before something that has failed is tried again."""

import asyncio
import math
import random
import time

_JITTER = 0.1
"""How much of a pause may be added by chance, so that what failed together is not tried again together."""


class Backoff:
    """The pauses of one thing that is tried again and again: each twice as long as the one before."""

    def __init__(self, first_s: float, longest_s: float, steady_s: float = math.inf) -> None:
        """No pause so far.

        Args:
            first_s: the first pause, in seconds.
            longest_s: none is longer.
            steady_s: what has worked for so long after a pause begins with the first pause again.
        """
        self._first = self._next = first_s
        self._longest = longest_s
        self._steady = steady_s
        self._resumed = time.monotonic()

    def next_s(self) -> float:
        """How long the pause is that begins now."""
        if time.monotonic() - self._resumed >= self._steady:
            self._next = self._first
        pause, self._next = self._next, min(2 * self._next, self._longest)
        self._resumed = time.monotonic() + pause
        return pause

    async def pause(self) -> None:
        """Let the next pause pass."""
        await asyncio.sleep(self.next_s() * random.uniform(1.0, 1.0 + _JITTER))  # noqa: S311 - spreads attempts
