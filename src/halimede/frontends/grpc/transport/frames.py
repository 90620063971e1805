"""HTTP/2 frames (RFC 9113): their numbers, and those that the transport sends, as bytes."""

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEADER_SIZE = 9
FRAME_HEADER = struct.Struct(">HBBBL")  # length (16 high bits, 8 low bits), type, flags, stream
SETTING = struct.Struct(">HL")
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
MIN_FRAME_LIMIT = 16_384
MAX_FRAME_LIMIT = 2**24 - 1
DEFAULT_TABLE_SIZE = 4096

DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

ACK = 0x1
END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

HEADER_TABLE_SIZE = 1
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ended."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):  # noqa: N818 - "connection error" is the RFC's word, and a builtin's name
    """The peer broke the protocol: the connection ends with GOAWAY, this code and this text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_FIXED_LENGTHS = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_ON_STREAMS = (DATA, HEADERS, PRIORITY, RST_STREAM, CONTINUATION)
_ON_CONNECTION = (SETTINGS, PING, GOAWAY)


def check_shape(kind: int, stream: int, length: int, limit: int) -> None:
    """Refuse a frame of more than `limit` bytes, or whose length or stream its type does not have.

    Raises:
        ConnectionFault: it has not.
    """
    if length > limit:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes; {limit} are allowed")
    if kind in _FIXED_LENGTHS and length != _FIXED_LENGTHS[kind]:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of type {kind} has {length} bytes")
    if kind in _ON_STREAMS and not stream:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} is not for stream 0")
    if kind in _ON_CONNECTION and stream:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} is only for stream 0")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values.items()))


SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def ping(payload: bytes, *, ack: bool = False) -> bytes:
    """A PING frame; `payload` has 8 bytes."""
    return frame(PING, ACK if ack else 0, 0, payload)


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last_stream: int, code: ErrorCode, text: str = "") -> bytes:
    """A GOAWAY frame; `text` is for the reader of the peer's log."""
    return frame(GOAWAY, 0, 0, struct.pack(">LL", last_stream, code) + text.encode())
