"""Tensors as JSON arrays, both ways."""

import json
import struct
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson

from halimede.codec.json_numbers import JsonArray
from halimede.codec.json_strings import json_of_texts
from halimede.codec.json_text import MAX_NESTING, NestingError
from halimede.codec.value_ranges import out_of_range, shortened, unexpected_value
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
from halimede.core.element_counts import element_count
from halimede.core.errors import InvalidArgumentError
from halimede.core.string_layout import MIN_ELEMENTS
from halimede.core.tensors import Array, Tensor, encode_texts


class _Kind(NamedTuple):
    """JSON elements of a datatype: their Python types, how `struct` packs them, and what errors call them.

    `accepted` are the integers for which tritonserver has no error; it cuts those that the datatype cannot hold.
    """

    types: frozenset[type]
    format: str
    words: str
    accepted: range = range(0)


_INTEGERS = frozenset((int,))
_NUMBERS = frozenset((int, float))


def _signed(code: str) -> _Kind:
    return _Kind(_INTEGERS, code, "non-signed-integer as signed-integer", range(-(1 << 63), 1 << 63))


def _unsigned(code: str) -> _Kind:
    return _Kind(_INTEGERS, code, "non-unsigned-integer as unsigned-integer", range(1 << 64))


_KINDS = {
    BOOL: _Kind(frozenset((bool,)), "?", "non-boolean as boolean"),
    BYTES: _Kind(frozenset((str,)), "", "non-string as string"),
    FP32: _Kind(_NUMBERS, "f", "non-number as double"),
    FP64: _Kind(_NUMBERS, "d", "non-number as double"),
    INT8: _signed("b"),
    INT16: _signed("h"),
    INT32: _signed("i"),
    INT64: _signed("q"),
    UINT8: _unsigned("B"),
    UINT16: _unsigned("H"),
    UINT32: _unsigned("I"),
    UINT64: _unsigned("Q"),
}


def tensor_from_json(
    name: str, datatype: Datatype, shape: tuple[int, ...], data: object, max_bytes: int
) -> Tensor:
    """The input that a JSON array, a list or a `JsonArray`, holds, nested or flat, row-major. Its array is read-only.

    For a shape without elements the data do not matter. If there are more or fewer strings than the shape says, the
    tensor holds them all, and is no valid input of any model.

    Raises:
        InvalidArgumentError: the datatype cannot come as JSON, the tensor would exceed `max_bytes`, the array is
            nested too deeply, an element is no value of the datatype, or there are not as many numbers as the shape
            says.
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
    if type(data) is JsonArray:
        numbers = data.numbers(datatype, count)
        if numbers is not None:
            return Tensor(datatype, shape, None, numbers.reshape(shape))
        data = data.as_list()
    elif not isinstance(data, list):
        msg = (
            f"Unable to parse 'data': attempt to access JSON non-array as array: input '{name}' takes an array of "
            f"{count} elements, got {shortened(data)}"
        )
        raise InvalidArgumentError(msg)
    elements, types = _flatten(data)
    kind = _KINDS[datatype]
    if datatype is BYTES:
        if not types <= kind.types:
            raise _wrong_type(name, datatype, shape, elements)
        texts = encode_texts(elements)
        _check_size(name, len(texts), max_bytes)
        return Tensor(datatype, shape, texts)
    if len(elements) != count:
        if not set(map(type, elements[:count])) <= kind.types:
            raise _wrong_type(name, datatype, shape, elements)
        msg = (
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input '{name}' of shape "
            f"{list(shape)} takes {count} elements, got {len(elements)}"
        )
        raise InvalidArgumentError(msg)
    if not types <= kind.types:
        raise _wrong_type(name, datatype, shape, elements)
    # Unlike numpy, `struct` refuses what the format cannot hold, floats among it. Its result is read-only.
    try:
        packed = struct.pack(f"<{count}{kind.format}", *elements)
    except (struct.error, OverflowError):
        raise _out_of_range(name, datatype, shape, elements) from None
    return Tensor(datatype, shape, None, np.frombuffer(packed, datatype.numpy).reshape(shape))


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
    if datatype is BYTES:
        return _texts(name, tensor)
    values = np.ascontiguousarray(tensor.array).reshape(-1)
    if datatype is FP32:
        values = values.astype(np.float64)  # clients expect the digits of the double that it widens to
    if values.dtype.kind == "f" and not (is_finite := np.isfinite(values)).all():
        return orjson.Fragment(_with_names(values, values[~is_finite]))
    return values


def _with_names(values: Array, not_finite: Array) -> bytes:
    """A JSON array of numbers, of which some are not finite: these by name, as JSON has no numbers for them."""
    first, *rest = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).split(b"null")
    names = [json.dumps(value).encode() for value in not_finite.tolist()]
    return first + b"".join([part for pair in zip(names, rest, strict=True) for part in pair])


def _flatten(data: list[Any]) -> tuple[list[Any], set[type]]:
    """All elements in order, and their types."""
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


def _texts(name: str, tensor: Tensor) -> Any:
    count = prod(tensor.shape)
    if count >= MIN_ELEMENTS and tensor.is_encoded:
        fragment = json_of_texts(tensor.data, count)
        if fragment is not None:
            return orjson.Fragment(fragment)
    values = tensor.array.ravel().tolist()
    try:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
    except UnicodeDecodeError:
        raise not_text(name) from None


def not_text(name: str) -> InvalidArgumentError:
    """The error of an output with a string that JSON cannot carry."""
    return InvalidArgumentError(
        f"output '{name}' has a string that is not UTF-8, which JSON cannot carry. "
        f"Please use the binary data format for output '{name}'"
    )


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        msg = (
            f"input '{name}' of {size} bytes exceeds the maximum allowed value of {max_bytes} bytes. "
            f"Use --http-max-input-size to increase the limit."
        )
        raise InvalidArgumentError(msg)


def _wrong_type(
    name: str, datatype: Datatype, shape: tuple[int, ...], elements: list[Any]
) -> InvalidArgumentError:
    """The error for the first element whose type is not one of the datatype's."""
    types = _KINDS[datatype].types
    index = next(index for index, element in enumerate(elements) if type(element) not in types)
    return _refusal(name, datatype, elements[index], _position(index, shape))


def _out_of_range(
    name: str, datatype: Datatype, shape: tuple[int, ...], elements: list[Any]
) -> InvalidArgumentError:
    """The error for the first number that the datatype cannot hold."""
    kind = _KINDS[datatype]
    index = next(index for index, element in enumerate(elements) if not _fits(element, kind.format))
    element, position = elements[index], _position(index, shape)
    if datatype in {FP32, FP64} or element in kind.accepted:
        return out_of_range(name, datatype, element, position)
    return _refusal(name, datatype, element, position)


def _fits(element: object, code: str) -> bool:
    try:
        struct.pack("<" + code, element)
    except (struct.error, OverflowError):
        return False
    return True


def _refusal(name: str, datatype: Datatype, element: object, position: Sequence[int]) -> InvalidArgumentError:
    """The error in tritonserver's words, followed by what it leaves out."""
    what = "JSON bytes array" if datatype is BYTES else "'data'"
    return InvalidArgumentError(
        f"Unable to parse {what}: attempt to access JSON {_KINDS[datatype].words}: "
        f"{unexpected_value(name, datatype, element, position)}"
    )


def _position(index: int, shape: tuple[int, ...]) -> list[int]:
    """The index in each dimension of an element, or its number if there are more elements than the shape takes."""
    if index >= prod(shape):
        return [index]
    position = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        position.append(rest)
    return position[::-1]
