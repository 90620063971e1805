"""How much the callbacks of an event loop do."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.support.loops import LoopThread


class Callbacks:
    """What was seen of callbacks and of the steps of tasks.

    Attributes:
        most_calls: the most functions that one of them called, of Python and of C.
        longest: the callback that did.
    """

    def __init__(self) -> None:
        self.most_calls = 0
        self.longest = ""
        self._calls = 0
        self._name = ""

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count; see `sys.setprofile`."""
        if event == "call" and frame.f_back is not None and frame.f_back.f_code is _LOOP:
            self._calls, self._name = 0, frame.f_code.co_qualname
        elif event in ("call", "c_call"):
            self._calls += 1
            if self._calls > self.most_calls:
                self.most_calls, self.longest = self._calls, self._name


_LOOP = threading.Thread.run.__code__
"""What runs the loop, and so what calls callbacks, as the loop itself is not written in Python."""


@contextmanager
def counted_callbacks(loop: LoopThread) -> Iterator[Callbacks]:
    """Count the calls of each callback of the loop in the block, which does not depend on how busy the machine is."""
    callbacks = Callbacks()
    loop.call(sys.setprofile, callbacks.profile)
    try:
        yield callbacks
    finally:
        loop.call(sys.setprofile, None)
