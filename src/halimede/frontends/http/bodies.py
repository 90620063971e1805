"""Bodies that arrive in pieces: of known length, straight into one buffer; or chunked."""

import asyncio
from enum import Enum
from typing import Protocol

from halimede.core.buffers import POOL
from halimede.frontends.http.head import Refusal

_NOTHING = memoryview(b"")

_LINE_BYTES = 256
"""Longest line with a chunk's size and its extensions."""


class Connection(Protocol):
    """What a body tells its connection, beside what a transport tells any protocol."""

    def body_complete(self, body: memoryview) -> None:
        """All bytes are there."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As of a protocol."""

    def eof_received(self) -> bool | None:
        """As of a protocol."""

    def pause_writing(self) -> None:
        """As of a protocol."""

    def resume_writing(self) -> None:
        """As of a protocol."""


class LengthBody(asyncio.BufferedProtocol):
    """A body of known length.

    As the transport's protocol it lets the kernel write straight into the body, and never beyond its end.

    Attributes:
        received: how many bytes are there.
        missing: how many are not.
    """

    def __init__(self, connection: Connection, length: int, tensors_begin: int = 0) -> None:
        """A body for the connection.

        Args:
            connection: told when it is complete.
            length: how many bytes.
            tensors_begin: the byte that is to lie as the elements of a tensor should.

        Raises:
            MemoryError: there is not so much.
        """
        self._connection = connection
        self._view = POOL.take(length, tensors_begin)
        self.received = 0
        self.missing = length

    def take(self, data: bytes) -> int:
        """Take what belongs to the body off the front of `data`; how many bytes that was."""
        taken = min(len(data), self.missing)
        self._view[self.received : self.received + taken] = data[:taken]
        self.received += taken
        self.missing -= taken
        return taken

    @property
    def body(self) -> memoryview:
        """The body, once nothing is missing."""
        return self._view

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._view[self.received :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have arrived."""
        self.received += nbytes
        self.missing -= nbytes
        if not self.missing:
            # the transport may keep this object until the next body comes, which must not keep the memory
            body, self._view = self._view, _NOTHING
            self._connection.body_complete(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()


class _Expected(Enum):
    SIZE = "a line with a chunk's size"
    DATA = "a chunk's bytes"
    DATA_END = "the line end after a chunk"
    TRAILER = "a trailer, or the empty line that ends the body"


class ChunkedBody:
    """A chunked body, taken apart as it arrives. Trailers are read and dropped.

    Attributes:
        data: the bytes so far.
        received: how many bytes arrived, framing included.
    """

    def __init__(self, max_bytes: int, max_chunks: int, max_trailer_bytes: int) -> None:
        self.data = bytearray()
        self.received = 0
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._max_trailer_bytes = max_trailer_bytes
        self._chunks = 0
        self._trailer_bytes = 0
        self._missing = 0
        self._line = b""
        self._expected = _Expected.SIZE

    def feed(self, data: bytes) -> int:
        """Take the next bytes; the position after the body's end, or -1 while it has not ended.

        Raises:
            Refusal: the framing is malformed, or exceeds a limit.
        """
        self.received += len(data)
        position, end = 0, len(data)
        while position < end:
            if self._expected is _Expected.DATA:
                stop = min(end, position + self._missing)
                self.data += memoryview(data)[position:stop]
                self._missing -= stop - position
                position = stop
                if not self._missing:
                    self._expected = _Expected.DATA_END
                continue
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
                raise Refusal(400, f"a body may come in at most {self._max_chunks} chunks")
            if len(self.data) + self._missing > self._max_bytes:
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
