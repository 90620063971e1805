"""The numbers that the server and a worker both see: see `halimede_worker.execution` and `halimede_worker.patience`."""

import numpy as np
from numpy.typing import NDArray

from halimede_worker.execution import BEGUN, DROP_FROM, DROP_TO
from halimede_worker.patience import ALLOWED, LOOKED

COUNT = 5


class Progress:
    """The server's side of them."""

    __slots__ = ("_allowed", "_looked_ns", "_numbers")

    def __init__(self, data: NDArray[np.uint8] | None = None) -> None:
        """Those in the bytes of `data`; without, nobody else sees them."""
        if data is None:
            data = np.zeros(8 * COUNT, np.uint8)
        self._numbers = data.view(np.int64).data  # an array's elements take three times as long to get
        self._allowed = 0
        self._looked_ns = 0

    @property
    def begun(self) -> int:
        """The number of the batch that was begun last."""
        return int(self._numbers[BEGUN])

    def take_back(self, before: int) -> int:
        """Take back batches that are not begun, up to and without that number: which was begun last."""
        numbers = self._numbers
        numbers[DROP_FROM], numbers[DROP_TO] = numbers[BEGUN] + 1, before
        return int(numbers[BEGUN])

    def allow_looking(self, longest_ns: int) -> int:
        """Let the worker look for its next batch for so long: for how many ns it has looked since the last call."""
        if not longest_ns and not self._allowed:
            return 0
        numbers = self._numbers
        numbers[ALLOWED] = self._allowed = longest_ns
        looked: int = numbers[LOOKED]
        since, self._looked_ns = looked - self._looked_ns, looked
        return since
