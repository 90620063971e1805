"""How much of an answer that comes in pieces may be on its way to a client of a front end.

The engine's process counts what it has sent, and holds the answer back while too much is on its way. The front end says
what the client's connection has taken. So a model is held back as soon as its client reads slowly, without a word from
the front end.
"""

from typing import Final

WINDOW: Final = 1 << 20
"""So many bytes may be on their way; one piece may be larger."""

TOLD_BYTES: Final = WINDOW // 4
"""A front end says at the latest after so many that they were taken."""


class Window:
    """What is on its way of one answer, as the engine's process knows it.

    Attributes:
        unread: bytes that were sent, and of which the front end has not said that they were taken.
    """

    __slots__ = ("unread",)

    def __init__(self) -> None:
        """Nothing yet."""
        self.unread = 0

    @property
    def is_full(self) -> bool:
        """Whether to send nothing more."""
        return self.unread >= WINDOW
