"""Tensors: a datatype, a shape and bytes, as a view for as long as that is possible.

A tensor that came from a socket holds a view on the receive buffer; one that a model made holds the
array. Each turns into the other form when it is first asked for.
"""

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from halimede.core.datatypes import BYTES, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede_worker.tensors import strings

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<I")

_ASCII_PREFIXES = [_LENGTH.pack(length).decode("latin-1") for length in range(1024)]
"""Lengths before ASCII, as text of a character a byte."""


class Tensor:
    """A tensor of any datatype.

    Attributes:
        datatype: what an element is.
        shape: the full shape, batch dimension included.
        shared: more than one reader holds it, so a model that may write to its inputs gets a copy.
    """

    __slots__ = ("_array", "_data", "datatype", "shape", "shared")

    def __init__(
        self,
        datatype: Datatype,
        shape: tuple[int, ...],
        data: Buffer | None = None,
        array: Array | None = None,
    ) -> None:
        self.datatype = datatype
        self.shape = shape
        self._data = data
        self._array = array
        self.shared = False

    @classmethod
    def from_array(cls, datatype: Datatype, array: Array) -> "Tensor":
        """A tensor over `array`, which is not copied unless it is not C-contiguous."""
        return cls(datatype, array.shape, None, array)

    @property
    def data(self) -> Buffer:
        """The elements as bytes: little-endian, row-major; BYTES as 4-byte length and content in turn.

        `len()` of it is the number of bytes.
        """
        if self._data is None:
            array = self._array
            assert array is not None
            if self.datatype is BYTES:
                self._data = encode_bytes(array.ravel().tolist())
            elif array.size == 0:
                self._data = b""
            else:
                self._data = np.ascontiguousarray(array).data.cast("B")
        return self._data

    @property
    def is_encoded(self) -> bool:
        """Whether `data` is at hand, and need not be made of the array."""
        return self._data is not None

    @property
    def array(self) -> Array:
        """The elements as an array of `shape`; BYTES as an object array of `bytes`. Perhaps read-only."""
        if self._array is None:
            data = self._data
            assert data is not None
            if self.datatype is BYTES:
                array = np.empty(prod(self.shape), dtype=np.object_)
                array[:] = decode_bytes(data)
                array.flags.writeable = False
            else:
                array = np.frombuffer(data, dtype=self.datatype.numpy)
            self._array = array.reshape(self.shape)
        return self._array

    @property
    def byte_size(self) -> int:
        """Bytes of the elements as `data` has them."""
        if self._data is None and self._array is not None and self.datatype is not BYTES:
            return self._array.nbytes
        return len(self.data)

    def reshaped(self, shape: tuple[int, ...]) -> "Tensor":
        """The same elements under another shape of as many elements."""
        array = None if self._array is None else self._array.reshape(shape)
        tensor = Tensor(self.datatype, shape, self._data, array)
        tensor.shared = self.shared
        return tensor

    def __repr__(self) -> str:
        return f"Tensor({self.datatype}, {list(self.shape)})"


def encode_bytes(elements: Sequence[bytes | str]) -> bytes:
    """BYTES elements as the protocol sends them: each a 4-byte little-endian length, then its content."""
    contents = list(elements)
    if set(map(type, contents)) != {bytes}:
        contents = [each.encode() if isinstance(each, str) else bytes(each) for each in contents]
    return strings.encode_elements(cast(list[bytes], contents))


def encode_texts(elements: list[str]) -> bytes:
    """Texts as BYTES elements in UTF-8, as `encode_bytes` gives them."""
    if not "".join(elements).isascii():
        return encode_bytes(elements)
    parts = elements * 2
    try:
        parts[::2] = map(_ASCII_PREFIXES.__getitem__, map(len, elements))
    except IndexError:  # one is longer than the table goes
        return encode_bytes(elements)
    parts[1::2] = elements
    return "".join(parts).encode("latin-1")


def decode_bytes(data: Buffer) -> list[bytes]:
    """The elements of a BYTES tensor.

    Raises:
        InvalidArgumentError: a length or its content is cut off.
    """
    try:
        return strings.decode_all(data)
    except ValueError:
        raise _cut_off(memoryview(data)) from None


def _cut_off(view: memoryview) -> InvalidArgumentError:
    """What is missing at the end of a BYTES tensor."""
    position, end = 0, len(view)
    while True:
        if end - position < _LENGTH.size:
            msg = f"expecting 4 bytes of string length but only {end - position} bytes available"
            return InvalidArgumentError(msg)
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if end - position < length:
            msg = f"expecting string of {length} bytes but only {end - position} bytes available"
            return InvalidArgumentError(msg)
        position += length
