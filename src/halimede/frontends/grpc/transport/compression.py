"""Compressed messages: gzip and deflate, bounded; large ones are worked on off the loop."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from halimede.core.buffers import POOL
from halimede.core.errors import Code
from halimede.core.tensors import Buffer

logger = logging.getLogger("halimede")

# up to so many bytes the work is shorter than the hand-over to a thread is worth
INLINE_SIZE = 16_384
# what is decompressed, and read, in one step: some milliseconds of work
PIECE_SIZE = 4 * 2**20
_PIECE_READ = 64 * 2**10
_GZIP = 31
_WBITS = {"gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class InflateError(Exception):
    """A compressed message is damaged, or its content is longer than allowed (`too_long`)."""

    def __init__(self, text: str, *, too_long: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.too_long = too_long


class Inflater:
    """A compressed message that is decompressed piece by piece.

    Attributes:
        complete: all of it is decompressed.
    """

    def __init__(self, message: memoryview, encoding: str, limit: int) -> None:
        """Nothing is decompressed yet.

        Args:
            message: the compressed message.
            encoding: how it is compressed.
            limit: the most bytes that it may hold.
        """
        self._message = message
        self._encoding = encoding
        self._limit = limit
        self._decompressor = zlib.decompressobj(_WBITS[encoding])
        self._read = 0
        self._room: npt.NDArray[np.uint8] | None = None
        self._size = 0
        self._content = memoryview(b"")
        self.complete = False

    def step(self) -> int:
        """Decompress a piece: how many bytes it has.

        Raises:
            InflateError: the message is damaged or holds more than it may.
        """
        decompressor = self._decompressor
        data: Buffer = decompressor.unconsumed_tail
        if not data:
            data = self._message[self._read : self._read + _PIECE_READ]
            self._read += len(data)
        most = min(PIECE_SIZE, self._limit + 1 - self._size)
        try:
            piece = decompressor.decompress(data, most)
        except zlib.error as error:
            raise InflateError(f"Failed to decompress message: {error}") from error
        size = self._size + len(piece)
        if size > self._limit:
            raise InflateError(f"Received message larger than max ({size} vs. {self._limit})", too_long=True)
        ended = decompressor.eof or (
            not piece and not decompressor.unconsumed_tail and self._read >= len(self._message)
        )
        self._keep(piece, ended=ended)
        if ended:
            if not decompressor.eof or decompressor.unused_data or self._read < len(self._message):
                msg = f"Failed to decompress message: it is not one whole {self._encoding} stream"
                raise InflateError(msg)
            self.complete = True
        return len(piece)

    def take(self) -> memoryview:
        """What the message holds, once it is `complete`; it is forgotten here."""
        content, self._content, self._room = self._content, memoryview(b""), None
        return content

    def _keep(self, piece: bytes, *, ended: bool) -> None:
        if ended and not self._size:  # all in one piece
            self._content = memoryview(piece)
            return
        size = self._size + len(piece)
        if self._room is None:
            try:
                self._room = np.empty(self._limit, np.uint8)  # of which the system gives what is used
            except MemoryError:
                raise InflateError(
                    "There is no memory for the content of the message", too_long=True
                ) from None
        self._room[self._size : size] = np.frombuffer(piece, np.uint8)
        self._size = size
        if ended:
            self._content = self._room[:size].data


def inflate(message: memoryview, encoding: str, limit: int) -> memoryview:
    """The content of a compressed message, at most `limit` bytes.

    Raises:
        InflateError: it is damaged or longer.
    """
    inflater = Inflater(message, encoding, limit)
    while not inflater.complete:
        inflater.step()
    return inflater.take()


def gzip(parts: Sequence[Buffer], level: int) -> bytes:
    """The parts, one after the other, compressed."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
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
