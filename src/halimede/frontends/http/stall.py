"""How long a client has taken nothing of what was written for it."""


class Stall:
    """Looked at now and then, from a coarse timer."""

    __slots__ = ("_since", "_unsent")

    def __init__(self) -> None:
        self._unsent = 0
        self._since = 0.0

    def seconds(self, unsent: int, now: float) -> float:
        """For how many seconds as much as now has been unsent, as far as looks have shown.

        Args:
            unsent: bytes that were written and that the socket has not taken.
            now: in seconds, of any clock that does not jump.
        """
        if not unsent or unsent != self._unsent:
            self._unsent, self._since = unsent, now
        return now - self._since
