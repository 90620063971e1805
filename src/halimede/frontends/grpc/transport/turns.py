"""How much of one turn of the loop a connection may take, so that a flood on one connection delays no other."""

import asyncio
from collections.abc import Callable

from halimede.core.clock import TURN_NS, Clock

# between two looks at the clock; small calls have about a hundred bytes, the costliest header blocks more than this
SLICE = 512
# the socket is read up to 32 times in a turn, while what it has fills the buffer
_SHORT_NS = TURN_NS // 4


class Turns:
    """Has a connection stop parsing after a millisecond, and go on after the others.

    Args:
        transport: is not read meanwhile.
        clock: the time that turns go by.
        go_on: parses what the last turn left.
    """

    __slots__ = ("_clock", "_due", "_ends", "_go_on", "_reading", "_transport")

    def __init__(self, transport: asyncio.Transport, clock: Clock, go_on: Callable[[], None]) -> None:
        self._transport = transport
        self._clock = clock
        self._go_on = go_on
        self._ends = 0
        self._due = False
        self._reading = True

    def begin(self) -> int:
        """Something was received: the time."""
        now = self._clock.now()
        self._ends = now + TURN_NS
        return now

    @property
    def over(self) -> bool:
        """Whether the rest has to wait for another turn."""
        return self._clock.now() > self._ends

    def stop(self, position: int, limit: int) -> int:
        """Up to where to parse before asking again; before `position` to stop there, as after `limit`."""
        return -1 if position > limit or self.over else min(limit, position + SLICE)

    def buffer_filled(self) -> None:
        """The socket has more, which would be read in this turn."""
        if self._clock.now() > self._ends - TURN_NS + _SHORT_NS:
            self.wait()

    def wait(self) -> None:
        """Go on in another turn, and read nothing until then."""
        if self._due:
            return
        self._due = True
        self._clock.call_soon(self._next)
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _next(self) -> None:
        self._due = False
        self._go_on()
        if not self._due and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()
