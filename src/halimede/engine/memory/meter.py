"""How much a piece of work adds to the memory of the server's own process.

Two numbers tell, and either may tell too little: what the process has for itself does not grow by what is allocated in
places that were freed before, and what is allocated with malloc leaves out what a framework gets from the system.
"""

import threading
from dataclasses import dataclass

from halimede.core import memory


@dataclass(slots=True, eq=False)
class Work:
    """Something that takes memory, or gives it back, and is measured.

    Attributes:
        alone: nothing else that is measured went on beside it.
        private: bytes that the process had for itself before.
        heap: bytes of them that were allocated with malloc.
    """

    alone: bool
    private: int = 0
    heap: int = 0


class GrowthMeter:
    """Measures loads and unloads. May be called from any thread; all block for some milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: set[Work] = set()

    def begin(self) -> Work:
        """A load or unload begins."""
        with self._lock:
            work = Work(not self._works)
            for other in self._works:
                other.alone = False
            self._works.add(work)
        work.private, work.heap = memory.private_bytes(), memory.heap_bytes()
        return work

    def taken(self, work: Work) -> int | None:
        """A load is over: bytes that it has taken; None if other work went on beside it."""
        growths = self._end(work)
        return None if growths is None else max(growths)

    def given_back(self, work: Work) -> int | None:
        """An unload is over: bytes that it has given back; None if other work went on beside it."""
        growths = self._end(work)
        return None if growths is None else -min(growths)

    def _end(self, work: Work) -> tuple[int, int] | None:
        growths = memory.private_bytes() - work.private, memory.heap_bytes() - work.heap
        with self._lock:
            self._works.discard(work)
        return growths if work.alone else None
