"""Memory for what arrives in bulk, used again once nobody holds it.

Fresh memory costs a page fault every 4 KiB, which at megabytes a request is most of what a request costs. The
buffers are shared segments, so that a tensor that was received into one reaches a worker process without a copy.
"""

import asyncio
import os
import sys

import numpy as np

from halimede_worker.messages.memory import ALIGNMENT, Segment, create_segment

_UNUSED = 3
"""References to a segment that nobody uses: the pool's list, the loop's variable, `getrefcount`'s argument."""

_MIN_SHARED = 65536
"""Less is copied about as fast as shared."""

_MAX_POOLED = 256 * 2**20

IDLE_SECONDS = 2.0
"""What was not used for so long, or a little longer, is given back."""


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
            self._trim_later()
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

    def _trim_later(self) -> None:
        """Trim from now on while there is anything to trim, if an event loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._trimmed_by is not loop:
            self._trimmed_by = loop
            loop.call_later(IDLE_SECONDS, self._trim_again)

    def _trim_again(self) -> None:
        self._trimmed_by = None
        self.trim()
        if self._segments:
            self._trim_later()

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
