"""Until when something is tried, and by whom it is stopped before."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_LOOK_S = 0.1
"""How soon what blocks is interrupted."""


class StoppedError(Exception):
    """Nobody wants it any more."""


class ExpiredError(Exception):
    """It took too long; the text, if there is any, says what was in the way."""


class Cancellation:
    """A time limit, and an event that another thread sets to stop.

    Args:
        stop: the event.
        timeout_s: how long may be tried, in seconds from now.
    """

    def __init__(self, stop: threading.Event, timeout_s: float) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """How long may still be tried."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Nothing, if there is time and nobody has stopped.

        Raises:
            StoppedError: somebody has.
            ExpiredError: there is no time left.
        """
        if self._stop.is_set():
            raise StoppedError
        if self.remaining_s <= 0:
            raise ExpiredError

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than there is time.

        Raises:
            StoppedError: somebody has stopped.
            ExpiredError: there is no time left.
        """
        self._stop.wait(max(0.0, min(seconds, self.remaining_s)))
        self.check()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have something called on another thread that ends what blocks in the block, when there is no more time."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_LOOK_S):
                if self._stop.is_set() or self.remaining_s <= 0:
                    with suppress(OSError):
                        interrupt()
                    return

        thread = threading.Thread(target=watch, name="halimede-interrupt", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
