"""How many lines of a kind clients can make the host log."""

import time
from collections.abc import Callable

LINES = 5
"""So many within `INTERVAL_S` are logged; the others are counted."""

INTERVAL_S = 1.0


class LineLimit:
    """Lets a few lines a second into the log. For one thread.

    Args:
        now: a time that never goes back, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begun = -INTERVAL_S
        self._logged = 0
        self._left_out = 0

    def admit(self) -> str | None:
        """What a line ends with that is to be logged: how many were left out before it. None if it is left out."""
        now = self._now()
        if now - self._begun >= INTERVAL_S:
            self._begun, self._logged = now, 0
        if self._logged == LINES:
            self._left_out += 1
            return None
        self._logged += 1
        left_out, self._left_out = self._left_out, 0
        return f" ({left_out} more such lines were not logged)" if left_out else ""
