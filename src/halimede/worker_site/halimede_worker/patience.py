"""How long a worker looks for its next batch before it goes to sleep.

To be woken takes tens of microseconds on an idle core, more than a small model computes. So while the server says that
there are idle cores and that requests come one by one, a worker that has answered looks again and again whether the
next one has come, as long as the last ones took, and some more.
"""

from time import monotonic_ns
from typing import Optional

from .messages.wire import Channel, Message

ALLOWED = 3
"""Where the server says for how many nanoseconds the worker may look; 0 for not at all."""

LOOKED = 4
"""Where the worker adds up how many nanoseconds it has looked, in vain or not."""

MARGIN_NS = 20_000
"""It looks for twice the usual time, and so much more."""


class Patience:
    """Looks for messages. Used by the main thread only."""

    def __init__(self, numbers: memoryview) -> None:
        """Patience of a worker.

        Args:
            numbers: int64 numbers that the server sees and writes: see `ALLOWED` and `LOOKED`.
        """
        self._numbers = numbers
        self._usual_ns = 0  # how long the next batch takes to come
        self._since = 0  # when there was nothing to do any more

    def look(self, work: Channel) -> Optional[Message]:
        """The next message, if it comes soon."""
        numbers = self._numbers
        allowed: int = numbers[ALLOWED]
        self._since = began = monotonic_ns()
        if self._usual_ns >= allowed:
            return None
        message = work.look(began + min(allowed, 2 * self._usual_ns + MARGIN_NS))
        numbers[LOOKED] += monotonic_ns() - began
        return message

    def found(self) -> None:
        """A batch has come."""
        since = self._since
        if since:
            allowed: int = self._numbers[ALLOWED]
            took = min(monotonic_ns() - since, 2 * allowed)
            self._usual_ns += (took - self._usual_ns) >> 3
