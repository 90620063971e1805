"""A response whose body comes piece by piece, such as server-sent events.

The pieces of one turn of the loop go out in one write. What the client does not take waits here, and whoever makes
the pieces is told to wait too.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from halimede.core.tensors import Buffer

WAITING_BYTES: Final = 262_144
WAITING_PIECES: Final = 64
"""A stream of which more than this waits is full."""

_LAST_CHUNK: Final = b"0\r\n\r\n"


class Connection(Protocol):
    """What a stream needs of its connection."""

    @property
    def write_paused(self) -> bool:
        """The client reads too slowly."""

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the socket has not taken."""

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        """Send these, `size` bytes together."""

    def stream_sent(self) -> None:
        """All of the stream has been written."""

    def abort(self) -> None:
        """Break the connection off."""


class ResponseStream:
    """The body of one response. Lives on the event loop.

    Attributes:
        status: the response's.
        content_type: its media type.
        full: more waits than should; let no more come until `on_room`.
        on_room: called when `full` becomes false again; set by whoever writes.
        written: bytes of the body that were handed to the socket.
        chunked: in chunks, after which the connection goes on; otherwise the end of the connection ends it.
    """

    __slots__ = (
        "_closed",
        "_connection",
        "_ended",
        "_head",
        "_pieces",
        "_scheduled",
        "_size",
        "_turn",
        "chunked",
        "content_type",
        "full",
        "on_room",
        "status",
        "written",
    )

    def __init__(self, connection: Connection, status: int, content_type: str, *, chunked: bool) -> None:
        self._connection = connection
        self._head = b""
        self._pieces: list[Buffer] = []
        self._size = 0
        self._turn = False
        self._scheduled = False
        self._ended = False
        self._closed = False
        self.status = status
        self.content_type = content_type
        self.chunked = chunked
        self.full = False
        self.written = 0
        self.on_room: Callable[[], None] | None = None

    @property
    def waiting(self) -> int:
        """Bytes that were not handed to the socket."""
        return self._size

    def write(self, piece: Buffer) -> None:
        """Send a piece, which is not empty, with the others of this turn of the loop."""
        if self._closed or self._ended:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > WAITING_BYTES or len(self._pieces) > WAITING_PIECES:
            if self._connection.unsent <= WAITING_BYTES:
                self.flush()
            else:  # the socket was not tried yet in this turn, which the transport does by itself
                self._flush_soon()
            self.full = bool(self._pieces)
        else:
            self._flush_soon()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self.flush()

    def abort(self) -> None:
        """Something went wrong of which the client cannot be told but by breaking the connection off."""
        if not self._closed:
            self.close()
            self._connection.abort()

    # the connection calls

    def start(self, head: bytes) -> None:
        """The responses before this one are sent: its head is the next."""
        self._turn = True
        self._head = head
        if self._pieces or self._ended:
            self.flush()
        else:
            self._flush_soon()  # with the first pieces, which are mostly about to come

    def close(self) -> None:
        """Nobody gets it any more."""
        self._closed = True
        self._pieces = []
        self._size = 0
        self.on_room = None

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send what waits, if it may be sent now."""
        self._scheduled = False
        if not self._turn or self._closed or self._connection.write_paused:
            return
        buffers: list[Buffer] = [self._head] if self._head else []
        size = self._size
        if size and self.chunked:
            buffers += (b"%x\r\n" % size, *self._pieces, b"\r\n")
        else:
            buffers += self._pieces
        if self._ended and self.chunked:
            buffers.append(_LAST_CHUNK)
        if buffers:
            self._head = b""
            self._pieces = []
            self._size = 0
            self.written += size
            self._connection.write(buffers, size)
        if self._ended:
            self.close()
            self._connection.stream_sent()
        elif self.full:
            self.full = False
            if self.on_room is not None:
                self.on_room()
