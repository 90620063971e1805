"""Memory that is shared by all who hold something for a while, and do without if there is none left."""


class Budget:
    """So many bytes, of which some are taken and given back.

    Attributes:
        free: what nobody has taken.
        used: what has been taken.
    """

    __slots__ = ("free", "used")

    def __init__(self, size: int) -> None:
        self.free = size
        self.used = 0

    def take(self, size: int) -> bool:
        """Take so many bytes; False, and nothing is taken, if there are fewer."""
        if size > self.free:
            return False
        self.free -= size
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self.free += size
        self.used -= size
