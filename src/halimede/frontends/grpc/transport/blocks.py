"""A header block that comes in more than one frame, or with padding."""

from halimede.frontends.grpc.transport.frames import (
    END_STREAM,
    HAS_PRIORITY,
    PADDED,
    ConnectionFault,
    ErrorCode,
)
from halimede.frontends.grpc.transport.guards import enhance_your_calm

# a header block within its limit never needs so many frames
MAX_FRAGMENTS = 32
_PRIORITY_SIZE = 5


class HeaderBlock:
    """Puts together what HEADERS and CONTINUATION carry.

    Attributes:
        stream: the stream of a block that must be gone on with; 0 when there is none.
        ends: whether the HEADERS frame ended the stream.
        limit: the longest block taken, in bytes.
    """

    __slots__ = ("_fragments", "_parts", "ends", "limit", "stream")

    def __init__(self, limit: int) -> None:
        self.stream = 0
        self.ends = False
        self.limit = limit
        self._parts = bytearray()
        self._fragments = 0

    def open(self, flags: int, stream: int, payload: bytes) -> None:
        """Begin with a HEADERS frame.

        Raises:
            ConnectionFault: its padding is longer than the frame.
        """
        start = _PRIORITY_SIZE if flags & HAS_PRIORITY else 0
        padding = 0
        if flags & PADDED:
            start += 1
            padding = payload[0] if payload else 0
        if start + padding > len(payload):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than the frame has bytes")
        self.stream = stream
        self.ends = bool(flags & END_STREAM)
        self._parts = bytearray(payload[start : len(payload) - padding])
        self._fragments = 1

    def extend(self, payload: bytes) -> None:
        """Go on with a CONTINUATION frame.

        Raises:
            ConnectionFault: there is nothing to go on with, or the block is beyond all measure.
        """
        if not self.stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._parts += payload
        self._fragments += 1
        if self._fragments > MAX_FRAGMENTS or len(self._parts) > self.limit:
            raise enhance_your_calm(
                f"a header block of more than {MAX_FRAGMENTS} frames or {self.limit} bytes"
            )

    def close(self) -> bytes:
        """The block is complete: its bytes."""
        self.stream = 0
        return bytes(self._parts)
