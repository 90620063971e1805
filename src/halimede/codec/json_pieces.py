"""The JSON of large outputs in pieces, each of them so little work that other requests are answered in between."""

from codecs import getincrementaldecoder
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import orjson

from halimede.codec.json_tensors import json_from_tensor, not_text
from halimede.core.datatypes import BYTES
from halimede.core.errors import InvalidArgumentError
from halimede.core.string_layout import whole_elements
from halimede.core.tensors import Array, Buffer, Tensor

PIECE_NUMBERS: Final = 65_536
"""Numbers of a piece: a millisecond of work."""

PIECE_STRINGS: Final = 8_192
PIECE_BYTES: Final = 131_072
"""Strings of a piece, and bytes of them."""

_LENGTH_BYTES: Final = 4


def is_large(tensor: Tensor) -> bool:
    """Whether the JSON of an output is made in pieces."""
    count = prod(tensor.shape)
    if tensor.datatype is not BYTES:
        return count > PIECE_NUMBERS
    return count > PIECE_STRINGS or (tensor.is_encoded and len(tensor.data) > PIECE_BYTES)


class TooLargeError(InvalidArgumentError):
    """The JSON of an output exceeds what a response may have."""

    def __init__(self, name: str, max_bytes: int) -> None:
        super().__init__(
            f"the JSON of a response may have {max_bytes} bytes, and that of output '{name}' has more. Please use the "
            f"binary data format for output '{name}', or --http-max-output-size to increase the limit."
        )


def json_pieces(name: str, tensor: Tensor, max_bytes: int) -> Iterator[Buffer]:
    """The JSON array of an output's elements, as `json_from_tensor` gives it, piece by piece.

    Args:
        name: of the output.
        tensor: the output, with elements.
        max_bytes: what the array may have.

    Raises:
        InvalidArgumentError: JSON cannot carry it, or it is larger than `max_bytes`.
    """
    if 2 * prod(tensor.shape) > max_bytes:  # each element has at least a digit, and a comma or bracket
        raise TooLargeError(name, max_bytes)
    size = 0
    for piece in _texts(name, tensor) if tensor.datatype is BYTES else _numbers(name, tensor):
        size += len(piece)
        if size >= max_bytes:
            raise TooLargeError(name, max_bytes)
        yield piece
    yield b"]"


def _elements(values: Any) -> memoryview:
    """What stands between the brackets, or quotes, of JSON."""
    return memoryview(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))[1:-1]


def _numbers(name: str, tensor: Tensor) -> Iterator[Buffer]:
    values = tensor.array.reshape(-1)
    before = b"["
    for start in range(0, len(values), PIECE_NUMBERS):
        part = Tensor.from_array(tensor.datatype, values[start : start + PIECE_NUMBERS])
        yield before
        yield _elements(json_from_tensor(name, part))
        before = b","


def _texts(name: str, tensor: Tensor) -> Iterator[Buffer]:
    before = b"["
    for part in _encoded_parts(tensor.data) if tensor.is_encoded else _array_parts(tensor.array):
        yield before
        if isinstance(part, Tensor):
            yield _elements(json_from_tensor(name, part))
        else:
            yield b'"'
            yield from _long_text(name, part)
            yield b'"'
        before = b","


def _encoded_parts(data: Buffer) -> "Iterator[Tensor | memoryview]":
    """Neighbouring strings together; one by itself, without its length, if it is longer than a piece."""
    view = memoryview(data)
    start = position = count = 0
    while position < len(view):
        if not count:
            found, size = whole_elements(view[position : position + PIECE_BYTES], PIECE_STRINGS)
            if found:
                yield Tensor(BYTES, (found,), view[position : position + size])
                start = position = position + size
                continue
        length = int.from_bytes(view[position : position + _LENGTH_BYTES], "little")
        end = position + _LENGTH_BYTES + length
        if count and (count == PIECE_STRINGS or end - start > PIECE_BYTES):
            yield Tensor(BYTES, (count,), view[start:position])
            start, count = position, 0
        if length > PIECE_BYTES:
            yield view[position + _LENGTH_BYTES : end]
            start = end
        else:
            count += 1
        position = end
    if count:
        yield Tensor(BYTES, (count,), view[start:])


def _array_parts(array: Array) -> "Iterator[Tensor | bytes]":
    """The same of strings that are objects."""
    values = array.reshape(-1)
    start = size = 0
    for position, value in enumerate(values):
        length = len(value)
        if position > start and (position - start == PIECE_STRINGS or size + length > PIECE_BYTES):
            yield Tensor.from_array(BYTES, values[start:position])
            start, size = position, 0
        if length > PIECE_BYTES:
            yield value if isinstance(value, bytes) else str(value).encode()
            start = position + 1
        else:
            size += length
    if start < len(values):
        yield Tensor.from_array(BYTES, values[start:])


def _long_text(name: str, text: Buffer) -> Iterator[Buffer]:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(text), PIECE_BYTES):
        end = start + PIECE_BYTES
        try:
            yield _elements(decoder.decode(text[start:end], end >= len(text)))
        except UnicodeDecodeError:
            raise not_text(name) from None
