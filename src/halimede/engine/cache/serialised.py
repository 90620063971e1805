"""Responses as bytes, for caches outside of the server: a description in JSON, then the outputs' bytes in turn."""

import json
import struct
from math import prod
from typing import Final

from halimede.core.datatypes import BY_NAME, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import ParameterValue
from halimede.core.tensors import Buffer, decode_bytes
from halimede.engine.cache.entries import Entry

_MAGIC: Final = b"HRC1"
_HEAD: Final = struct.Struct("<4sI")  # the magic number, and the length of the description


def serialise(entry: Entry) -> bytes:
    """The response as bytes."""
    tensors = [(name, datatype.name, shape, len(data)) for name, datatype, shape, data in entry.tensors]
    description = json.dumps([tensors, entry.parameters]).encode()
    buffers = (data for _, _, _, data in entry.tensors)
    return b"".join((_HEAD.pack(_MAGIC, len(description)), description, *buffers))


def deserialise(value: bytes) -> Entry:
    """The response that was made bytes of, whose tensors are views of them.

    Raises:
        ValueError: the bytes are none, or not all of one.
    """
    try:
        return _deserialise(memoryview(value))
    except (
        struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidArgumentError,
    ) as error:  # fmt: skip
        raise ValueError(f"not a response: {error!r}") from error


def _deserialise(view: memoryview) -> Entry:
    magic, length = _HEAD.unpack_from(view)
    if magic != _MAGIC:
        raise ValueError("it begins with something else")
    begin = _HEAD.size + length
    described, parameters = json.loads(bytes(view[_HEAD.size : begin]))
    tensors = []
    for name, datatype_name, dims, size in described:
        datatype, shape, data = BY_NAME[datatype_name], tuple(dims), view[begin : begin + size]
        if not isinstance(name, str) or not all(type(dim) is int and dim >= 0 for dim in shape):
            raise ValueError("an output has no name, or no shape")
        if _elements(datatype, data, size) != prod(shape):
            raise ValueError("an output has more or less elements than its shape says")
        tensors.append((name, datatype, shape, data))
        begin += size
    if begin != len(view):
        raise ValueError("it is longer than it says")
    return Entry(tuple(tensors), _checked(parameters), set(), len(view))


def _elements(datatype: Datatype, data: Buffer, size: int) -> float:
    """How many elements the bytes hold; not a whole number if they are cut off."""
    if len(data) != size:
        raise ValueError("it is cut off")
    return len(decode_bytes(data)) if datatype is BYTES else size / datatype.itemsize


def _checked(parameters: object) -> dict[str, ParameterValue] | None:
    if parameters is None:
        return None
    if not isinstance(parameters, dict) or not all(
        isinstance(value, bool | int | float | str) for value in parameters.values()
    ):
        raise ValueError("its parameters are none")
    return parameters
