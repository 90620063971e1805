"""Memory for what arrives in bulk, used again once nobody holds it.

Fresh memory costs a page fault every 4 KiB, which at megabytes a request is most of what a request costs. The
buffers are shared segments, so that a tensor that was received into one reaches a worker process without a copy.
"""

import asyncio
import os
import sys

import numpy as np

from halimede.core.memory import trim_memory
from halimede_worker.messages.memory import ALIGNMENT, Segment, create_segment

_UNUSED = 3
"""References to a segment that nobody uses: the pool's list, the loop's variable, `getrefcount`'s argument."""

_MIN_SHARED = 65536
"""Less is copied about as fast as shared."""

_MAX_POOLED = 256 * 2**20

IDLE_SECONDS = 2.0
"""What was not used for so long, or a little longer, is given back."""

_LONGEST_PAUSE_S = 64.0
"""Between two looks at the heap after the last large request."""


class BufferPool:
    """Segments of this process. Used on the event loop only.

    Whatever views a segment (memoryview, ndarray) refers to it, so the reference count tells whether it is in use.
    """

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._made = 0
        self._process = 0
        self._used: set[int] = set()  # since the last trim
        self._trimmed_by: asyncio.AbstractEventLoop | None = None
        self._pause_s = IDLE_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def number_by_process(self) -> None:
        """From now on, give segments numbers that neither the server's own process nor its workers give."""
        self._process = os.getpid()

    def segment(self, size: int) -> Segment:
        """A segment of at least `size` bytes that nobody uses, not cleared.

        Raises:
            MemoryError: there is not so much.
        """
        best: Segment | None = None
        for segment in self._segments:
            fits = segment.size >= size and (best is None or segment.size < best.size)
            if fits and sys.getrefcount(segment) == _UNUSED:
                best = segment
        if best is not None and best.size <= max(2 * size, 4 << 20):
            self._used.add(best.number)
            return best
        fresh = self.private(size)
        if fresh.size + sum(segment.size for segment in self._segments) <= _MAX_POOLED:
            self._segments.append(fresh)
            self._used.add(fresh.number)
            self.trim_later()
        return fresh

    def private(self, size: int) -> Segment:
        """A new segment of at least `size` bytes that the pool will not give to anyone else.

        Raises:
            MemoryError: there is not so much.
        """
        self._made += 1
        return create_segment(-(self._process << 24 | self._made) if self._process else self._made, size)

    def take(self, size: int, alignment: int = 0) -> memoryview:
        """Writable memory of `size` bytes, not cleared.

        Args:
            size: how many bytes.
            alignment: the byte that should lie at a multiple of 64.

        Raises:
            MemoryError: there is not so much.
        """
        if size < _MIN_SHARED:
            return np.empty(size, np.uint8).data  # not a bytearray, which would be cleared
        begin = -alignment % ALIGNMENT
        return self.segment(begin + size).data[begin : begin + size]

    def trim_later(self) -> None:
        """Trim from now on while there is anything to trim, and the heap, if an event loop runs.

        To be called for what took much memory elsewhere, too: the C library keeps what is freed for itself.
        """
        self._pause_s = IDLE_SECONDS
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._trimmed_by is loop and self._timer is not None:
            if self._timer.when() <= loop.time() + IDLE_SECONDS:
                return
            self._timer.cancel()
        self._look_in(IDLE_SECONDS, loop)

    def _look_in(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._trimmed_by = loop
        self._timer = loop.call_later(seconds, self._trim_again)

    def _trim_again(self) -> None:
        loop, self._trimmed_by, self._timer = asyncio.get_running_loop(), None, None
        self.trim()
        if self._segments:
            self.trim_later()
            return
        loop.run_in_executor(None, trim_memory)
        self._pause_s *= 2  # a request may hold what was not in segments for longer
        if self._pause_s <= _LONGEST_PAUSE_S:
            self._look_in(self._pause_s, loop)

    def trim(self) -> None:
        """Give back what was not used since the last call."""
        self._segments = [
            segment
            for segment in self._segments
            if segment.number in self._used or sys.getrefcount(segment) > _UNUSED
        ]
        self._used = set()

    def release(self) -> None:
        """Give back whatever nobody uses: memory is short."""
        self._segments = [segment for segment in self._segments if sys.getrefcount(segment) > _UNUSED]


POOL = BufferPool()
"""The pool of the process."""
