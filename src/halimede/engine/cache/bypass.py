"""Leaving out what fails: after a failure nothing is tried for a while, which grows with each failure in a row."""

import logging
from typing import Final

from halimede.core.clock import MILLISECOND, SECOND, Clock

logger = logging.getLogger("halimede")

FIRST_PAUSE_NS: Final = 250 * MILLISECOND
LONGEST_PAUSE_NS: Final = 30 * SECOND


class Bypass:
    """Whether something that may fail is to be tried. Each change is logged once."""

    def __init__(self, what: str, clock: Clock) -> None:
        """All is well with `what`, as the log calls it."""
        self._what = what
        self._clock = clock
        self._pause = 0  # nanoseconds; 0 while all is well
        self._next = 0  # when to try again
        self._trying = False  # the one attempt that is to tell whether all is well again is under way

    @property
    def open(self) -> bool:
        """Whether it is left out, because it failed."""
        return bool(self._pause)

    def admits(self) -> bool:
        """Whether to try it now; who is told so tells what came of it, by `worked`, `failed` or `abandoned`."""
        if not self._pause:
            return True
        if self._trying or self._clock.now() < self._next:
            return False
        self._trying = True
        return True

    def worked(self) -> None:
        """It was tried, and worked."""
        self._trying = False
        if self._pause:
            self._pause = 0
            logger.info("%s works again", self._what)

    def failed(self, why: str) -> None:
        """It was tried, and did not work."""
        if self._pause and not self._trying:
            return  # begun before it was left out
        self._trying = False
        if not self._pause:
            logger.warning("%s failed, and is left out until it works again: %s", self._what, why)
        self._pause = min(2 * self._pause or FIRST_PAUSE_NS, LONGEST_PAUSE_NS)
        self._next = self._clock.now() + self._pause

    def abandoned(self) -> None:
        """It was not tried after all."""
        self._trying = False
