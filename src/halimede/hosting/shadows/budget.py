"""The memory that all copies of a process share."""


class Budget:
    """So many bytes, of which copies take some and give them back.

    Attributes:
        free: what nobody has taken.
    """

    __slots__ = ("free",)

    def __init__(self, size: int) -> None:
        self.free = size

    def take(self, size: int) -> bool:
        """Take so many bytes; False, and nothing is taken, if there are fewer."""
        if size > self.free:
            return False
        self.free -= size
        return True

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self.free += size
