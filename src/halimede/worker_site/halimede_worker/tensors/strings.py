"""BYTES tensors on the wire: of each element a little-endian length of four bytes, then as many bytes.

Everything here that runs once an element runs in C: iterators that feed each other, without a line of Python
between two elements. Short elements that are all of one length are laid out by numpy, which is faster still.
"""

import io
import struct
from functools import partial
from typing import Any, Dict, List, Sequence, Tuple, Union

import numpy as np

Buffer = Union[bytes, bytearray, memoryview]

_LENGTH = struct.Struct("<I")

_SHORT = 1024
"""Elements of fewer bytes are short: their prefixes are looked up in a table."""

_PREFIXES = [_LENGTH.pack(length) for length in range(_SHORT)]


class _Lengths(Dict[bytes, int]):
    """Lengths by their prefix; those that are not in the table are worked out."""

    def __missing__(self, prefix: bytes) -> int:
        length: int = _LENGTH.unpack(prefix)[0]
        return length


_LENGTHS = _Lengths(zip(_PREFIXES, range(_SHORT)))


def encode(array: np.ndarray) -> bytes:
    """The elements as they are on the wire, in C order.

    Args:
        array: of any shape, with dtype object or `S`. An object that is not `bytes` is encoded as its text in UTF-8,
            so that None is `b"None"`; numpy drops the NULs at the end of an element of an `S` dtype.
    """
    elements: List[Any] = array.ravel().tolist()
    if set(map(type, elements)) != {bytes}:
        elements = [element if type(element) is bytes else str(element).encode() for element in elements]
    return encode_elements(elements)


def encode_elements(elements: List[bytes]) -> bytes:
    """The elements as they are on the wire."""
    if not elements:
        return b""
    lengths = list(map(len, elements))
    if lengths[0] < _SHORT and 1 < len(lengths) == lengths.count(lengths[0]):
        return _encode_equal(elements, lengths[0])
    parts = elements * 2
    try:
        parts[::2] = map(_PREFIXES.__getitem__, lengths)
    except IndexError:  # one is longer than the table goes
        parts[::2] = map(_LENGTH.pack, lengths)
    parts[1::2] = elements
    return b"".join(parts)


def _encode_equal(elements: Sequence[bytes], length: int) -> bytes:
    rows = np.empty((len(elements), _LENGTH.size + length), np.uint8)
    rows[:, : _LENGTH.size] = np.frombuffer(_LENGTH.pack(length), np.uint8)
    rows[:, _LENGTH.size :] = np.frombuffer(b"".join(elements), np.uint8).reshape(len(elements), length)
    return rows.tobytes()


def decode(data: Buffer, count: int) -> List[bytes]:
    """The elements.

    Args:
        data: of a BYTES tensor, as it is on the wire.
        count: how many elements there are.

    Raises:
        ValueError: a length or its element is cut off, or there are fewer or more elements.
    """
    size = len(data)
    length = size // count - _LENGTH.size if count > 1 and size % count == 0 else 0
    if 0 < length < _SHORT:  # perhaps all are of one length
        rows = np.frombuffer(data, [("length", "<u4"), ("element", f"V{length}")])
        if rows["length"][0] == length and (rows["length"] == length).all():
            equal: List[bytes] = rows["element"].tolist()
            return equal
    elements = decode_all(data)
    if len(elements) != count:
        raise ValueError(f"a BYTES tensor of {count} elements holds {len(elements)}")
    return elements


def decode_all(data: Buffer) -> List[bytes]:
    """The elements, whatever their lengths and however many there are.

    Raises:
        ValueError: a length or its element is cut off.
    """
    read = io.BytesIO(data).read
    try:
        elements = list(map(read, map(_LENGTHS.__getitem__, iter(partial(read, _LENGTH.size), b""))))
    except struct.error:
        raise ValueError("a BYTES tensor ends inside the length of an element") from None
    if elements:
        # only the last can be cut off: whatever follows another would have been read as a part of it
        length = len(elements[-1])
        (announced,) = _LENGTH.unpack_from(data, len(data) - length - _LENGTH.size)
        if announced != length:
            raise ValueError(
                f"a BYTES tensor ends inside an element: {length} of its {announced} bytes are there"
            )
    return elements


def serialize_byte_tensor(input_tensor: np.ndarray) -> "bytes | Tuple[()] | None":
    """The elements of a BYTES tensor as they are on the wire, in C order.

    Args:
        input_tensor: of any shape, with dtype object or `S`.

    Returns:
        The bytes; an empty tuple if the tensor has no elements, None if its dtype is another.
    """
    if input_tensor.size == 0:
        return ()
    return encode(input_tensor) if input_tensor.dtype.kind in "OS" else None


def deserialize_bytes_tensor(encoded_tensor: Buffer) -> np.ndarray:
    """The elements of a BYTES tensor, as a 1-D array of `bytes` objects.

    Raises:
        struct.error: a length or its element is cut off.
    """
    try:
        return array_of(decode_all(encoded_tensor))
    except ValueError:
        raise _cut_off(encoded_tensor) from None


def _cut_off(data: Buffer) -> struct.error:
    """What `struct` says of elements that end too early."""
    position = 0
    try:
        while position < len(data):
            (length,) = _LENGTH.unpack_from(data, position)
            position += _LENGTH.size
            struct.unpack_from(f"<{length}s", data, position)
            position += length
    except struct.error as error:
        return error
    raise AssertionError("nothing is cut off")


def array_of(elements: Sequence[bytes]) -> np.ndarray:
    """The elements as a 1-D object array."""
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array
