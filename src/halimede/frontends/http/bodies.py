"""Bodies that arrive in pieces: of known length, straight into one buffer; or chunked."""

import asyncio
from typing import Protocol

from halimede.core.buffers import POOL
from halimede.frontends.http.chunks import Chunks

_NOTHING = memoryview(b"")


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


class ChunkedBody(Chunks):
    """A chunked body, collected as it arrives.

    Attributes:
        data: the bytes so far.
    """

    def __init__(self, max_bytes: int, max_chunks: int, max_trailer_bytes: int) -> None:
        super().__init__(max_bytes, max_chunks, max_trailer_bytes)
        self.data = bytearray()

    def take(self, piece: memoryview) -> None:
        """Keep it."""
        self.data += piece
