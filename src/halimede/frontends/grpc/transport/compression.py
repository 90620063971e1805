"""Compressed messages: gzip and deflate, bounded; large ones are worked on off the loop."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from halimede.core.buffers import POOL
from halimede.core.errors import Code
from halimede.core.tensors import Buffer
from halimede.frontends.inflation import DEFLATE, GZIP

logger = logging.getLogger("halimede")

# up to so many bytes the work is shorter than the hand-over to a thread is worth
INLINE_SIZE = 16_384

WBITS = {"gzip": GZIP, "deflate": DEFLATE}
"""How a message is compressed → as zlib numbers it."""


def gzip(parts: Sequence[Buffer], level: int) -> bytes:
    """The parts, one after the other, compressed."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, GZIP)
    return b"".join((*(compressor.compress(part) for part in parts), compressor.flush()))


class CompressedCall(Protocol):
    """A call whose messages are compressed."""

    path: str

    @property
    def closed(self) -> bool:
        """Nothing is sent any more."""

    @property
    def writable(self) -> bool:
        """Whether the client takes what is sent."""

    def enqueue(self, parts: Sequence[Buffer], *, compressed: bool) -> None:
        """Send a message as it is."""

    def finish(self, status: int = 0, message: str = "") -> None:
        """End the call."""

    def tell_if_writable(self) -> None:
        """Tell the handler, which was told otherwise, that the call is writable, if it is."""


class Compressor:
    """Compresses what one call sends and keeps its order.

    Attributes:
        waiting: bytes that are to be compressed, or being so.
        working: there are some.
    """

    __slots__ = ("_call", "_level", "_todo", "waiting", "working")

    def __init__(self, call: CompressedCall, level: int) -> None:
        self._call = call
        self._level = level
        self._todo: deque[Sequence[Buffer] | tuple[int, str]] = deque()
        self.waiting = 0
        self.working = False

    def send(self, parts: Sequence[Buffer]) -> None:
        """Compress a message and send it after those before it."""
        size = _size(parts)
        if not self.working and size <= INLINE_SIZE:
            self._call.enqueue([gzip(parts, self._level)], compressed=True)
            return
        self.waiting += size
        self._todo.append(list(parts))
        if not self.working:
            self._next()

    def finish(self, status: int, message: str) -> None:
        """Finish the call after what is still being compressed."""
        self._todo.append((status, message))

    def _next(self) -> None:
        self.working = bool(self._todo)
        if not self._todo:
            return
        item = self._todo.popleft()
        if isinstance(item, tuple):
            self.working = False
            self._call.finish(*item)
            return
        work = asyncio.get_running_loop().run_in_executor(None, gzip, item, self._level)
        work.add_done_callback(partial(self._done, _size(item)))

    def _done(self, size: int, work: asyncio.Future[bytes]) -> None:
        call = self._call
        POOL.trim_later()
        if call.closed:
            self._todo.clear()
            return
        was_writable = call.writable
        self.waiting -= size
        try:
            compressed = work.result()
        except Exception:  # in a callback of the loop, nobody else would answer
            logger.exception("a message of gRPC call %s cannot be compressed", call.path)
            self._todo.clear()
            self.working = False
            call.finish(
                Code.INTERNAL.grpc_status, "the server failed to compress the response; its log says why"
            )
            return
        call.enqueue([compressed], compressed=True)
        self._next()
        if not was_writable and not call.closed:
            call.tell_if_writable()


def _size(parts: Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in parts)
