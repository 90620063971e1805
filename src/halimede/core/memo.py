"""Results of pure functions that are asked the same again and again, found by one look into a dictionary."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """`remembered[key]` is `make(key)`, made once. All is forgotten when there are too many.

    That is cheaper at each look than to know which was used last, and a workload with more different keys than
    fit gains nothing from either.
    """

    def __init__(self, make: Callable[[K], V], limit: int = 512) -> None:
        super().__init__()
        self._make = make
        self._limit = limit

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = value
        return value
