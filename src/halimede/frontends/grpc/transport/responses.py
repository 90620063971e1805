"""Response headers and trailers as HPACK blocks, encoded without the dynamic table so that they can be constants."""

import re
from collections.abc import Iterable
from enum import IntEnum
from urllib.parse import quote

# clients refuse trailers beyond 8 KiB (the specification's suggestion), and would lose the status with them
MAX_MESSAGE = 4096

_STATUS_200 = b"\x88"
_STATUS_NAME_INDEX = 8
_CONTENT_TYPE_INDEX = 31
# all that may stand for itself in grpc-message: space to tilde, except the percent sign
_UNENCODED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class Status(IntEnum):
    """gRPC status codes that the transport itself answers with."""

    OK = 0
    CANCELLED = 1
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def _integer(value: int, prefix_bits: int, first: int) -> bytes:
    """An HPACK integer (RFC 7541 §5.1) whose first byte also carries the bits of `first`."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((first | value,))
    encoded = bytearray((first | limit,))
    value -= limit
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _string(value: bytes) -> bytes:
    return _integer(len(value), 7, 0) + value


def field(name: str, value: str) -> bytes:
    """A header field, literal and not indexed."""
    return b"\x00" + _string(name.encode()) + _string(value.encode())


def _indexed_name(index: int, value: str) -> bytes:
    return _integer(index, 4, 0) + _string(value.encode())


def percent_encode(message: str) -> str:
    """A `grpc-message` value: UTF-8, percent-encoded, cut to what clients accept."""
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE]
    encoded = quote(message, safe=_UNENCODED, errors="replace")
    if len(encoded) <= MAX_MESSAGE:
        return encoded
    encoded = encoded[:MAX_MESSAGE]
    cut = encoded.rfind("%", MAX_MESSAGE - 2)
    return encoded if cut < 0 else encoded[:cut]


def trailers(status: int, message: str = "") -> bytes:
    """The block that ends a reply."""
    block = field("grpc-status", str(int(status)))
    return block + field("grpc-message", percent_encode(message)) if message else block


def trailers_only(status: int, message: str, extra: Iterable[tuple[str, str]] = ()) -> bytes:
    """The block of a reply that has no message."""
    return HEADERS_BLOCK + b"".join(field(*pair) for pair in extra) + trailers(status, message)


def refusal(http_status: int, message: str, extra: Iterable[tuple[str, str]] = ()) -> bytes:
    """The block that answers what is not a gRPC request."""
    block = _indexed_name(_STATUS_NAME_INDEX, str(http_status)) + b"".join(field(*pair) for pair in extra)
    return block + trailers(Status.INTERNAL, message)


HEADERS_BLOCK = _STATUS_200 + _indexed_name(_CONTENT_TYPE_INDEX, "application/grpc")
GZIP_HEADERS_BLOCK = HEADERS_BLOCK + field("grpc-encoding", "gzip")
OK_TRAILERS = trailers(Status.OK)
_STATUS_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_STATUS_FIELD = re.compile(rb"grpc-status.([0-9]+)", re.DOTALL)


def status_name(status: int) -> str:
    """The name of a gRPC status, as INVALID_ARGUMENT; its number if it has none."""
    return _STATUS_NAMES[status] if 0 <= status < len(_STATUS_NAMES) else str(status)


def status_of(block: bytes) -> int:
    """The gRPC status in a block that `trailers`, `trailers_only` or `refusal` made."""
    found = _STATUS_FIELD.search(block)
    return int(found[1]) if found else int(Status.INTERNAL)


NO_DYNAMIC_TABLE = b"\x20"  # a table size update to 0
