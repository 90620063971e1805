"""Work of which only a few pieces go on at a time; others wait in order, and for a while at most."""

import asyncio
from collections.abc import Callable


class Place:
    """A place in a line."""

    __slots__ = ("_line", "begin", "give_up", "timer")

    def __init__(self, line: "Line", begin: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._line = line
        self.begin = begin
        self.give_up = give_up
        self.timer: asyncio.TimerHandle | None = None

    def leave(self) -> None:
        """The work is done, or not wanted any more. May be called again."""
        self._line.left(self)


class Line:
    """Pieces of work. Used on the event loop only."""

    def __init__(self, most: int, wait_s: float) -> None:
        """None yet.

        Args:
            most: how many go on at a time.
            wait_s: how long another one waits for its turn, in seconds.
        """
        self._most = most
        self._wait_s = wait_s
        self._working: set[Place] = set()
        self._waiting: dict[Place, None] = {}

    def join(self, begin: Callable[[], None], give_up: Callable[[], None]) -> Place:
        """Wait for a turn.

        Args:
            begin: called when it is there, perhaps at once.
            give_up: called in its place when it has not come in time.
        """
        place = Place(self, begin, give_up)
        if len(self._working) < self._most:
            self._working.add(place)
            begin()
        else:
            self._waiting[place] = None
            place.timer = asyncio.get_running_loop().call_later(self._wait_s, self._late, place)
        return place

    def left(self, place: Place) -> None:
        """A place is free, or nobody waits for it any more."""
        if place.timer is not None:
            place.timer.cancel()
        self._waiting.pop(place, None)
        self._working.discard(place)
        while self._waiting and len(self._working) < self._most:
            following = next(iter(self._waiting))
            del self._waiting[following]
            if following.timer is not None:
                following.timer.cancel()
            self._working.add(following)
            following.begin()

    def _late(self, place: Place) -> None:
        del self._waiting[place]
        place.give_up()
