"""A body that comes in chunks, taken apart as it arrives."""

import sys
from abc import ABC, abstractmethod
from enum import Enum

from halimede.http1.head import Refusal

_LINE_BYTES = 256
"""Longest line with a chunk's size and its extensions."""

LINES_AT_ONCE = 256
"""Lines of framing that take a connection less than a turn of the loop; chunks of usual sizes have fewer in what is
read at once."""


class _Expected(Enum):
    SIZE = "a line with a chunk's size"
    DATA = "a chunk's bytes"
    DATA_END = "the line end after a chunk"
    TRAILER = "a trailer, or the empty line that ends the body"


class Chunks(ABC):
    """The chunked coding of HTTP/1.1 (RFC 9112, section 7.1), taken apart as it arrives. Trailers are dropped.

    Attributes:
        received: how many bytes arrived, framing included.
        left: how many of the bytes last given were not taken, as they had more lines than asked for.
    """

    def __init__(self, max_bytes: int, max_chunks: int, max_trailer_bytes: int) -> None:
        self.received = 0
        self.left = 0
        self._size = 0
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._max_trailer_bytes = max_trailer_bytes
        self._chunks = 0
        self._trailer_bytes = 0
        self._missing = 0
        self._line = b""
        self._expected = _Expected.SIZE

    @abstractmethod
    def take(self, piece: memoryview) -> None:
        """Bytes of the body."""

    def feed(self, data: bytes, lines: int = sys.maxsize) -> int:
        """Take the next bytes; the position after the body's end, or -1 while it has not ended.

        Args:
            data: the bytes. `left` of them are to be given again.
            lines: how many lines of framing to take at most.

        Raises:
            Refusal: the framing is malformed, or exceeds a limit.
        """
        self.received += len(data)
        self.left = 0
        position, end = 0, len(data)
        while position < end:
            if self._expected is _Expected.DATA:
                stop = min(end, position + self._missing)
                self.take(memoryview(data)[position:stop])
                self._missing -= stop - position
                position = stop
                if not self._missing:
                    self._expected = _Expected.DATA_END
                continue
            if not lines:
                self.left = end - position
                self.received -= self.left
                return -1
            lines -= 1
            stop = data.find(b"\n", position) + 1
            self._line += data[position : stop or end]
            trailer = self._expected is _Expected.TRAILER
            if len(self._line) > (self._max_trailer_bytes if trailer else _LINE_BYTES):
                raise Refusal(400, f"malformed chunked body: {self._expected.value} is too long")
            if not stop:
                return -1
            position, line, self._line = stop, self._line, b""
            if not line.endswith(b"\r\n"):
                raise Refusal(400, "malformed chunked body: a line does not end in CRLF")
            if self._take_line(line[:-2]):
                return position
        return -1

    def _take_line(self, line: bytes) -> bool:
        """Take one line of framing; whether it ends the body."""
        if self._expected is _Expected.DATA_END:
            if line:
                raise Refusal(400, "malformed chunked body: a chunk is longer than its size")
            self._expected = _Expected.SIZE
        elif self._expected is _Expected.SIZE:
            self._missing = _chunk_size(line)
            if not self._missing:
                self._expected = _Expected.TRAILER
                return False
            self._expected = _Expected.DATA
            self._chunks += 1
            if self._chunks > self._max_chunks:
                msg = (
                    f"Chunked request body exceeds maximum of {self._max_chunks} non-empty chunks. "
                    f"Send larger chunks, or the body with its Content-Length."
                )
                raise Refusal(400, msg)
            self._size += self._missing
            if self._size > self._max_bytes:
                raise Refusal(413, f"the body is larger than the allowed {self._max_bytes} bytes")
        else:
            if not line:
                return True
            self._trailer_bytes += len(line)
            if self._trailer_bytes > self._max_trailer_bytes:
                raise Refusal(431, f"trailers are larger than the allowed {self._max_trailer_bytes} bytes")
        return False


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if not 0 < len(digits) <= 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise Refusal(400, "malformed chunked body: a chunk's size is not a hexadecimal number")
    return int(digits, 16)
