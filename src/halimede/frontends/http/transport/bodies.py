"""Bodies that arrive in pieces: of known length, straight into one buffer; or chunked."""

import asyncio
from typing import Protocol

from halimede.core.buffers import POOL
from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.json_limit import too_large_for
from halimede.frontends.http.settings import HttpLimits
from halimede.http1.chunks import Chunks
from halimede.http1.head import Head, JsonLength, Refusal
from halimede.net.receiving import BodyTooLargeError, ReceiveBudget, Receiver, Reception

_NOTHING = memoryview(b"")

_CHUNKED_SIZES = (65_536, 4 << 20, 64 << 20)
"""The memory of a chunked body grows by these steps, and then to all that it may take, of which the system gives what
is used."""


class Connection(Receiver, Protocol):
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
        reception: counts its memory.
    """

    def __init__(
        self, connection: Connection, reception: Reception, length: int, tensors_begin: int = 0
    ) -> None:
        """A body for the connection.

        Args:
            connection: told when it is complete.
            reception: counts its memory.
            length: how many bytes.
            tensors_begin: the byte that is to lie as the elements of a tensor should.

        Raises:
            MemoryError: there is not so much.
        """
        self._connection = connection
        self.reception = reception
        self._view = POOL.take(length, tensors_begin)
        self.received = 0
        self.missing = length

    def take(self, data: bytes) -> int:
        """Take what belongs to the body off the front of `data`; how many bytes that was."""
        taken = min(len(data), self.missing)
        self._view[self.received : self.received + taken] = data[:taken]
        self.received += taken
        self.missing -= taken
        self.reception.add(taken)
        return taken

    @property
    def body(self) -> memoryview:
        """The body, once nothing is missing."""
        return self._view

    def close(self) -> None:
        """Let go of it."""
        # the transport may keep this object until the next body comes, which must not keep the memory
        self.reception.close()
        self._view = _NOTHING

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._view[self.received :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have arrived."""
        self.received += nbytes
        self.missing -= nbytes
        self.reception.add(nbytes)
        if not self.missing:
            self._connection.body_complete(self._view)

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
        reception: counts its memory.
    """

    def __init__(
        self,
        reception: Reception,
        max_bytes: int,
        max_chunks: int,
        max_trailer_bytes: int,
        tensors_begin: int = 0,
    ) -> None:
        super().__init__(max_bytes, max_chunks, max_trailer_bytes)
        self.reception = reception
        self._tensors_begin = tensors_begin
        self._small = bytearray()
        self._large = _NOTHING
        self._taken = 0

    def take(self, piece: memoryview) -> None:
        """Keep it.

        Raises:
            Refusal: there is no memory for it.
        """
        size = self._taken + len(piece)
        if size <= _CHUNKED_SIZES[0]:
            self._small += piece
        else:
            if size > len(self._large):
                self._grow(size)
            self._large[self._taken : size] = piece
        self._taken = size
        self.reception.add(len(piece))

    def _grow(self, size: int) -> None:
        wanted = next((step for step in _CHUNKED_SIZES[1:] if step >= size), self._max_bytes)
        try:
            grown = POOL.take(max(size, min(wanted, self._max_bytes)), self._tensors_begin)
        except MemoryError:
            raise Refusal(413, f"there is no memory for a body of {size} bytes") from None
        grown[: self._taken] = self._large[: self._taken] if len(self._large) else self._small
        self._large, self._small = grown, bytearray()

    @property
    def body(self) -> memoryview:
        """The bytes so far."""
        return self._large[: self._taken] if len(self._large) else memoryview(self._small)

    def close(self) -> None:
        """Let go of it."""
        self.reception.close()


def begin_body(
    connection: Connection, budget: ReceiveBudget, head: Head, limits: HttpLimits, json_length: JsonLength
) -> LengthBody | ChunkedBody:
    """The body that follows a head, to be received.

    Args:
        connection: whose body it is.
        budget: counts its memory.
        head: of the request.
        limits: what it may be.
        json_length: where binary tensors begin in a body.

    Raises:
        Refusal: it is larger than allowed, or than there is memory for.
    """
    length = head.length
    tensors_begin = _tensors_begin(head, json_length)
    if length > limits.body_bytes:
        msg = f"the body of {length} bytes is larger than the allowed {limits.body_bytes} bytes"
        raise Refusal(413, msg)
    is_json = tensors_begin < 0 and "content-encoding" not in head.headers
    if is_json and length > limits.json_bytes:
        raise Refusal(400, too_large_for(head.path, length, limits.json_bytes))
    try:
        reception = budget.open(connection, length)
    except BodyTooLargeError as error:
        raise Refusal(413, str(error)) from None
    if length < 0:
        most = min(limits.json_bytes if is_json else limits.body_bytes, budget.large_limit)
        return ChunkedBody(reception, most, limits.chunks, limits.head_bytes, max(0, tensors_begin))
    try:
        return LengthBody(connection, reception, length, max(0, tensors_begin))
    except MemoryError:
        reception.close()
        raise Refusal(413, f"there is no memory for a body of {length} bytes") from None


def _tensors_begin(head: Head, json_length: JsonLength) -> int:
    """Where in the body the first binary tensor begins; -1 if the body is nothing but JSON."""
    try:
        length = json_length(head.headers)
    except InvalidArgumentError:  # which the handler will tell the client
        return 0
    if length is None:
        return -1
    return int(length) if length.isdecimal() and len(length) < 16 else 0
