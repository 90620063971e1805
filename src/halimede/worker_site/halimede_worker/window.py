"""How far a model may run ahead of who reads its responses."""

import threading

RESPONSES = 64
"""So many responses of one request may be under way."""


class Window:
    """Room for responses on their way: whoever sends takes a place, the server gives places back.

    Args:
        size: how many may be on their way.
    """

    __slots__ = ("_changed", "_closed", "_room", "_unbounded")

    def __init__(self, size: int = RESPONSES) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._room = size
        self._unbounded = False
        self._closed = False

    def take(self) -> bool:
        """Take one place, waiting for it if need be. False: the window is closed."""
        with self._changed:
            while self._room <= 0 and not self._unbounded and not self._closed:
                self._changed.wait()
            self._room -= 1
            return not self._closed

    @property
    def full(self) -> bool:
        """Whether `take` would wait."""
        with self._changed:
            return self._room <= 0 and not self._unbounded and not self._closed

    def credit(self, places: int) -> None:
        """So many more responses may be sent."""
        with self._changed:
            self._room += places
            self._changed.notify_all()

    def unbind(self) -> None:
        """Let all pass from now on: nobody reads the responses any more."""
        with self._changed:
            self._unbounded = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait, nor pass, from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
