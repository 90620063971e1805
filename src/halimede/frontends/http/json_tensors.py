"""Tensors as JSON arrays, both ways."""

import json
from array import array
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from halimede.core.datatypes import (
    BF16,
    BOOL,
    BYTES,
    FP16,
    FP32,
    FP64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Datatype,
)
from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.tensors import Array, Tensor, encode_bytes
from halimede.frontends.http.json_text import MAX_NESTING, NestingError

INT64_MAX: Final = (1 << 63) - 1


class _Kind(NamedTuple):
    """JSON elements of a datatype: their Python types, the array that takes them, and what errors call them."""

    types: frozenset[type]
    typecode: str
    words: str


_SIGNED = _Kind(frozenset((int,)), "q", "non-signed-integer as signed-integer")
_UNSIGNED = _Kind(frozenset((int,)), "Q", "non-unsigned-integer as unsigned-integer")
_NUMBERS = frozenset((int, float))
_KINDS = {
    BOOL: _Kind(frozenset((bool,)), "b", "non-boolean as boolean"),
    BYTES: _Kind(frozenset((str,)), "", "non-string as string"),
    FP32: _Kind(_NUMBERS, "f", "non-number as double"),
    FP64: _Kind(_NUMBERS, "d", "non-number as double"),
    **dict.fromkeys((INT8, INT16, INT32, INT64), _SIGNED),
    **dict.fromkeys((UINT8, UINT16, UINT32, UINT64), _UNSIGNED),
}


def element_count(name: str, shape: Sequence[int], datatype: Datatype) -> int:
    """How many elements an input of this shape has.

    Raises:
        InvalidArgumentError: more than can be counted, or more bytes.
    """
    count = prod(shape)
    if count > INT64_MAX:
        msg = f"shape {list(shape)} of input '{name}' causes total element count to exceed maximum size of {INT64_MAX}"
        raise InvalidArgumentError(msg)
    if count * datatype.itemsize > INT64_MAX:
        raise InvalidArgumentError(f"byte size overflow for input '{name}' of shape {list(shape)}")
    return count


def tensor_from_json(
    name: str, datatype: Datatype, shape: tuple[int, ...], data: object, max_bytes: int
) -> Tensor:
    """The input that a JSON array holds, nested or flat, row-major. Its array is read-only.

    For a shape without elements the data do not matter. If there are more or fewer strings than the shape says, the
    tensor holds them all, and is no valid input of any model.

    Raises:
        InvalidArgumentError: the datatype cannot come as JSON, the tensor would exceed `max_bytes`, or the
            array is nested too deeply.
        InternalError: the elements are not of the datatype, or numbers not as many as the shape says.
    """
    count = element_count(name, shape, datatype)
    if not (count and shape):
        return Tensor(datatype, shape, b"")
    if datatype in {FP16, BF16}:
        msg = (
            f"receiving {datatype} data via JSON is not supported. "
            f"Please use the binary data format for input {name}"
        )
        raise InvalidArgumentError(msg)
    _check_size(name, count * (datatype.itemsize or 4), max_bytes)
    elements, types = _flatten(data)
    kind = _KINDS[datatype]
    if datatype is BYTES:
        if not types <= kind.types:
            raise InternalError(f"Unable to parse JSON bytes array: attempt to access JSON {kind.words}")
        values = _strings(name, elements, max_bytes)
        if len(elements) != count:
            return Tensor(datatype, shape, encode_bytes(values.tolist()))
    else:
        if len(elements) != count:
            if not set(map(type, elements[:count])) <= kind.types:
                raise _wrong_type(kind)
            raise InternalError("Unable to parse 'data': Shape does not match true shape of 'data' field")
        if not types <= kind.types:
            raise _wrong_type(kind)
        # array.array keeps what it cannot represent out, which numpy does not.
        try:
            numbers = array(kind.typecode, elements)
        except OverflowError:
            raise _wrong_type(kind) from None
        values = np.frombuffer(numbers, dtype=numbers.typecode).astype(datatype.numpy, copy=False)
    values.flags.writeable = False
    return Tensor(datatype, shape, None, values.reshape(shape))


def json_from_tensor(name: str, tensor: Tensor) -> Any:
    """An output as a flat array, for `orjson.dumps` with OPT_SERIALIZE_NUMPY.

    Raises:
        InvalidArgumentError: JSON cannot carry it.
    """
    datatype = tensor.datatype
    if datatype in {FP16, BF16}:
        msg = (
            f"sending {datatype} data via JSON is not supported. "
            f"Please use the binary data format for output {name}"
        )
        raise InvalidArgumentError(msg)
    values = np.ascontiguousarray(tensor.array).reshape(-1)
    if datatype is BYTES:
        return _texts(name, values)
    if datatype is FP32:
        values = values.astype(np.float64)  # clients expect the digits of the double that it widens to
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return orjson.Fragment(json.dumps(values.tolist(), separators=(",", ":")))
    return values


def _flatten(data: object) -> tuple[list[Any], set[type]]:
    """All elements in order, and their types."""
    if not isinstance(data, list):
        raise InternalError("Unable to parse 'data': attempt to access JSON non-array as array")
    depth = 1
    while True:
        types = set(map(type, data))
        if list not in types:
            return data, types
        if len(types) > 1:
            data = _flatten_mixed(data, depth)
            return data, set(map(type, data))
        depth += 1
        if depth > MAX_NESTING:
            raise NestingError
        data = list(chain.from_iterable(data))


def _flatten_mixed(data: list[Any], depth: int) -> list[Any]:
    """All elements of an array in which values and arrays stand side by side."""
    flat: list[Any] = []
    levels = [iter(data)]
    while levels:
        for element in levels[-1]:
            if type(element) is list:
                levels.append(iter(element))
                if depth + len(levels) - 1 > MAX_NESTING:
                    raise NestingError
                break
            flat.append(element)
        else:
            levels.pop()
    return flat


def _strings(name: str, elements: list[str], max_bytes: int) -> Array:
    encoded = [element.encode() for element in elements]
    _check_size(name, sum(map(len, encoded)) + 4 * len(encoded), max_bytes)
    values = np.empty(len(encoded), dtype=np.object_)
    values[:] = encoded
    return values


def _texts(name: str, values: Array) -> list[str]:
    try:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]
    except UnicodeDecodeError:
        msg = (
            f"output '{name}' has a string that is not UTF-8, which JSON cannot carry. "
            f"Please use the binary data format for output '{name}'"
        )
        raise InvalidArgumentError(msg) from None


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        msg = (
            f"input '{name}' of {size} bytes exceeds the maximum allowed value of {max_bytes} bytes. "
            f"Use --http-max-input-size to increase the limit."
        )
        raise InvalidArgumentError(msg)


def _wrong_type(kind: _Kind) -> InternalError:
    return InternalError(f"Unable to parse 'data': attempt to access JSON {kind.words}")
