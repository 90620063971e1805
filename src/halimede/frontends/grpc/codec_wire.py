"""The outermost layer of a ModelInferRequest's wire format, so that tensors are never copied.

Protobuf would copy every tensor out of the message. Here the top-level fields are walked by hand, tensors are
taken as views, and only the rest, which is small, is left to protobuf.
"""

from collections.abc import Sequence
from typing import Final

from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Buffer
from halimede.frontends.request_bounds import MAX_ENTRIES

# field numbers of ModelInferRequest
ID = 3
RAW = 7

_LENGTH_DELIMITED = 2
_ID_TAG = ID << 3 | _LENGTH_DELIMITED
_RAW_TAG = RAW << 3 | _LENGTH_DELIMITED
_MAX_LENGTH_BYTES = 5

MAX_FIELDS: Final = 4 * MAX_ENTRIES + 64
"""Fields of a message: inputs, raw tensors, outputs and parameters, each as often as they may be, and some more."""


def split_request(
    message: memoryview,
) -> tuple[list[memoryview], bytes, list[tuple[int, int]]] | None:
    """The parts of a ModelInferRequest: all but id and tensors, in pieces, the id, (start, end) of each tensor.

    None for what no usual client sends, such as overlong tags or unknown fields that are not length-delimited,
    and for messages that are cut off: protobuf's own parser is to judge those.

    Raises:
        InvalidArgumentError: the message has more fields than it may.
    """
    end = len(message)
    position = kept_from = 0
    kept: list[memoryview] = []
    identifier = b""
    tensors: list[tuple[int, int]] = []
    fields = 0
    while position < end:
        fields += 1
        if fields > MAX_FIELDS:
            raise InvalidArgumentError(f"the request has more than the maximum of {MAX_FIELDS} fields")
        tag = message[position]
        if tag & 0x87 != _LENGTH_DELIMITED or position + 1 == end:
            return None
        length = message[position + 1]
        start = position + 2
        if length > 0x7F:
            length &= 0x7F
            shift = 7
            while True:
                if start == end or shift == 7 * _MAX_LENGTH_BYTES:
                    return None
                byte = message[start]
                start += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        after = start + length
        if after > end:
            return None
        if tag == _RAW_TAG:
            tensors.append((start, after))
        elif tag == _ID_TAG:
            identifier = bytes(message[start:after])
        else:
            position = after
            continue
        if kept_from < position:
            kept.append(message[kept_from:position])
        position = kept_from = after
    if kept_from < end:
        kept.append(message[kept_from:])
    return kept, identifier, tensors


def joined(pieces: Sequence[Buffer]) -> bytes:
    """The pieces as one message."""
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


def varint(value: int) -> bytes:
    """A non-negative number as protobuf writes lengths."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field_head(number: int, length: int) -> bytes:
    """What stands before the content of a length-delimited field."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(length)


def total_length(parts: Sequence[Buffer]) -> int:
    """Bytes in all parts together."""
    return sum(map(len, parts))
