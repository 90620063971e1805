"""Request headers: from an HPACK block to what a call needs, remembered while clients repeat themselves."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping

from hpack import Decoder, HPACKError

from halimede.core.clock import MILLISECOND, SECOND
from halimede.core.media_types import essence
from halimede.frontends.grpc.transport.call import Method, RequestHead, UnaryMethod
from halimede.frontends.grpc.transport.frames import ConnectionFault, ErrorCode
from halimede.frontends.grpc.transport.responses import Status, refusal, trailers_only

# the decoder gives up beyond this many times the limit, and the connection with it
HARD_LIMIT_FACTOR = 2
MAX_HEADERS = 256
MAX_MEMOIZED = 64
MAX_MEMOIZED_BLOCK = 2048

ENCODINGS = ("identity", "deflate", "gzip")
TIMEOUT_UNITS = {
    "H": 3600 * SECOND,
    "M": 60 * SECOND,
    "S": SECOND,
    "m": MILLISECOND,
    "u": 1000,
    "n": 1,
}

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_BAD_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9a-z]")
_BAD_VALUE = re.compile(rb"[\x00\r\n]")
_TIMEOUT = re.compile(r"[0-9]{1,8}[HMSmun]")
# not the application's: the transport's own, and names that gRPC reserves
_NOT_METADATA = frozenset(
    ("te", "content-type", "content-length", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding")
)


Authorize = Callable[[str, str | None], str]


class MalformedHeadersError(Exception):
    """The header list breaks HTTP/2's rules: the stream is reset with PROTOCOL_ERROR."""


class HeaderReader:
    """Decodes the header blocks of one connection.

    Clients repeat their blocks byte for byte. A block that left the dynamic table unchanged means the same until
    the table changes, so its meaning is remembered.

    Args:
        methods: full path to the method.
        max_list_size: bytes of a header list, as HTTP/2 counts them.
        authorize: why a call of a group with such an `authorization` is refused, "" if it is not; None to refuse none.
    """

    def __init__(
        self, methods: Mapping[str, Method], max_list_size: int, authorize: Authorize | None = None
    ) -> None:
        self._methods = methods
        self._authorize = authorize
        self._max_list_size = max_list_size
        self._decoder = Decoder(max_header_list_size=max_list_size * HARD_LIMIT_FACTOR)
        self._known: dict[bytes, RequestHead] = {}

    def read(self, block: bytes) -> RequestHead:
        """The request that a header block begins.

        Raises:
            ConnectionFault: the block cannot be decoded, or is beyond all measure.
            MalformedHeadersError: it breaks HTTP/2's rules.
        """
        head = self._known.get(block)
        if head is not None:
            return head
        fields, unchanged = self._decode(block)
        head = self._understand(fields)
        if unchanged and len(block) <= MAX_MEMOIZED_BLOCK:
            if len(self._known) >= MAX_MEMOIZED:
                self._known.clear()
            self._known[block] = head
        return head

    def forget(self) -> None:
        """Understand anew what was read before: who may call has changed."""
        self._known.clear()

    def skip(self, block: bytes) -> None:
        """Decode a block whose meaning is not needed, for what it does to the dynamic table."""
        if block not in self._known:
            self._decode(block)

    def _decode(self, block: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        if len(block) > MAX_HEADERS and count_fields(block) > MAX_HEADERS:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"a call with more than {MAX_HEADERS} headers")
        table = self._decoder.header_table
        entries = table.dynamic_entries
        before = (entries[0] if entries else None, len(entries), table.maxsize)
        try:
            fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            if type(error).__name__ == "OversizedHeaderListError":
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, str(error)) from error
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"header block: {error}") from error
        first = entries[0] if entries else None
        # each insertion puts a new tuple in front; `before` keeps the old one alive, so identity tells
        unchanged = first is before[0] and len(entries) == before[1] and table.maxsize == before[2]
        if not unchanged:
            self._known.clear()
        return fields, unchanged

    def _understand(self, fields: list[tuple[bytes, bytes]]) -> RequestHead:
        _check(fields)
        text = _joined(fields)
        path = text.get(":path", "")
        method = self._methods.get(path)
        refused = self._refusal(fields, text, path, method)
        timeout = -1
        metadata: dict[str, str | bytes] = {}
        if not refused:
            try:
                timeout = parse_timeout(text["grpc-timeout"]) if "grpc-timeout" in text else -1
                metadata = _metadata(text)
            except ValueError as error:
                refused = trailers_only(Status.INTERNAL, str(error))
        return RequestHead(
            path,
            None if refused else method,
            method.handler if isinstance(method, UnaryMethod) and not refused else None,
            metadata,
            timeout,
            text.get("grpc-encoding", "identity"),
            method.compression if method is not None and _accepts_gzip(text) else 0,
            refused,
        )

    def _refusal(
        self, fields: list[tuple[bytes, bytes]], text: dict[str, str], path: str, method: Method | None
    ) -> bytes:
        if text[":method"] != "POST":
            return refusal(405, "gRPC requests have the method POST", (("allow", "POST"),))
        content_type, _, _ = essence(text.get("content-type", "")).partition("+")
        if content_type != "application/grpc":
            return refusal(415, "gRPC requests have the content-type application/grpc")
        size = sum(32 + len(name) + len(value) for name, value in fields)
        if size > self._max_list_size:
            limit = self._max_list_size
            return trailers_only(
                Status.RESOURCE_EXHAUSTED, f"Received metadata larger than max ({size} vs. {limit})"
            )
        if self._authorize is not None:
            refused = self._authorize(method.group if method is not None else "", text.get("authorization"))
            if refused:
                return trailers_only(Status.UNAUTHENTICATED, refused)
        if method is None:
            return trailers_only(Status.UNIMPLEMENTED, f"Method not found: {path}")
        encoding = text.get("grpc-encoding", "identity")
        if encoding not in ENCODINGS:
            return trailers_only(
                Status.UNIMPLEMENTED,
                f"Compression algorithm '{encoding}' is not supported; use one of {', '.join(ENCODINGS)}",
                (("grpc-accept-encoding", ",".join(ENCODINGS)),),
            )
        return b""


def count_fields(block: bytes) -> int:
    """How many header fields a block has (RFC 7541, section 6), without the work of decoding it."""
    count = position = 0
    while position < len(block):
        first = block[position]
        if first >= 0x80:
            count += 1
            position = _integer(block, position, 7)[1]
        elif 0x20 <= first < 0x40:  # a new size of the table
            position = _integer(block, position, 5)[1]
        else:
            count += 1
            name, position = _integer(block, position, 6 if first >= 0x40 else 4)
            for _ in range(1 if name else 2):
                length, position = _integer(block, position, 7)
                position += length
    return count


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """The integer at `position`, of which its first byte has the lowest `bits`, and the position after it."""
    most = (1 << bits) - 1
    value = block[position] & most if position < len(block) else 0
    position += 1
    if value == most:
        for shift in range(0, 70, 7):
            more = block[position] if position < len(block) else 0
            position += 1
            value += (more & 0x7F) << shift
            if more < 0x80:
                break
    return value, position


def parse_timeout(text: str) -> int:
    """Nanoseconds in the value of a `grpc-timeout` header; ValueError if it is not one."""
    if not _TIMEOUT.fullmatch(text):
        raise ValueError(f"grpc-timeout is '{text}': it must be up to 8 digits and one of H, M, S, m, u, n")
    return int(text[:-1]) * TIMEOUT_UNITS[text[-1]]


def decode_binary(name: str, text: str) -> bytes:
    """The bytes of a "-bin" header, padded or not; ValueError if it is not base64."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"metadata '{name}' is not base64: {error}") from error


def _check(fields: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse what RFC 9113 §8.2 and §8.3 call malformed."""
    seen: set[bytes] = set()
    regular = False
    for name, value in fields:
        if name.startswith(b":"):
            if regular or name not in _PSEUDO or name in seen:
                raise MalformedHeadersError(f"pseudo-header {name!r} is unknown, repeated or late")
            seen.add(name)
        else:
            regular = True
            if not name or _BAD_NAME.search(name):
                raise MalformedHeadersError(f"header name {name!r} is not allowed")
            if name in _HOP_BY_HOP or (name == b"te" and value != b"trailers"):
                raise MalformedHeadersError(f"header {name!r} is not allowed in HTTP/2")
        if _BAD_VALUE.search(value):
            raise MalformedHeadersError(f"the value of header {name!r} is not allowed")
    if not {b":method", b":scheme", b":path"} <= seen:
        raise MalformedHeadersError(":method, :scheme and :path must be there")


def _joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Name → value; the values of a repeated name are joined with commas, which HTTP calls the same."""
    text: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name = raw_name.decode("ascii", "replace")
        value = raw_value.decode("utf-8", "replace")
        text[name] = f"{text[name]},{value}" if name in text else value
    return text


def _accepts_gzip(text: Mapping[str, str]) -> bool:
    return "gzip" in (word.strip() for word in text.get("grpc-accept-encoding", "").split(","))


def _metadata(text: Mapping[str, str]) -> dict[str, str | bytes]:
    metadata: dict[str, str | bytes] = {}
    for name, value in text.items():
        if name.startswith(":") or name in _NOT_METADATA:
            continue
        if name.endswith("-bin"):
            # of several values, each encoded on its own, the application sees the last
            metadata[name] = decode_binary(name, value.rsplit(",", 1)[-1].strip())
        else:
            metadata[name] = value
    return metadata
