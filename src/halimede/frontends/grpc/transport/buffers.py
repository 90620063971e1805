"""Buffers for long messages, used again once nobody holds them: fresh memory costs a page fault every 4 KiB."""

import sys

import numpy as np

# references to a buffer that nobody uses: the pool's list, the loop's variable, getrefcount's argument
_UNUSED = 3
_MAX_BUFFERS = 8
_MAX_POOLED = 64 * 2**20

Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


class BufferPool:
    """The receive buffers of one connection.

    Whatever views a buffer (memoryview, ndarray) refers to it, so the reference count tells whether it is in use.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[Memory] = []

    def take(self, size: int) -> memoryview:
        """Writable memory of `size` bytes, not cleared.

        Raises:
            MemoryError: there is not so much.
        """
        unused = -1
        for index, buffer in enumerate(self._buffers):
            if sys.getrefcount(buffer) == _UNUSED:
                if size <= buffer.size <= 2 * size:
                    return buffer.data[:size]
                unused = index
        if unused >= 0:
            del self._buffers[unused]
        # numpy does not clear it: memory that the client announces and never fills is never touched
        fresh: Memory = np.empty(size, np.uint8)
        pooled = sum(buffer.size for buffer in self._buffers)
        if len(self._buffers) < _MAX_BUFFERS and pooled + size <= _MAX_POOLED:
            self._buffers.append(fresh)
        return fresh.data
