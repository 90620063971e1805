"""Values of JSON as tensors of a model, and texts that its tensors hold."""

from math import isfinite
from typing import Any, Final

import numpy as np
import orjson

from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BYTES, FP32, UINT32
from halimede.core.errors import InternalError
from halimede.core.tensors import Array, Tensor, decode_bytes, encode_bytes
from halimede.frontends.openai.errors import FieldError

_ONE: Final = 1
_LENGTH_BYTES: Final = 4
"""Of the length before each element of BYTES."""


def value_tensor(signature: Signature, spec: TensorSpec, field: str, value: Any) -> Tensor:
    """A value as the model takes it: one element, or as many as a list has.

    Args:
        signature: of the model.
        spec: the input.
        field: what the value is of, for errors.
        value: a string, a number, a boolean, a list of those, or what becomes JSON in an input of strings.

    Raises:
        FieldError: the input cannot hold it.
    """
    values = value if isinstance(value, list | tuple) else [value]
    shape = _shape(signature, spec, len(values))
    if shape is None:
        msg = (
            f"'{field}' has {len(values)} elements, but the model's input '{spec.name}' does not take so many"
        )
        raise FieldError(field, msg)
    if spec.datatype is BYTES:
        try:
            texts = [each if isinstance(each, str | bytes) else orjson.dumps(each) for each in values]
            return Tensor(BYTES, shape, encode_bytes(texts))
        except (TypeError, ValueError) as error:  # half of a surrogate pair
            raise FieldError(field, f"'{field}' cannot be encoded: {error}") from None
    try:
        array = np.array(values, dtype=spec.datatype.numpy).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"'{field}' does not fit the model's input '{spec.name}' of {spec.datatype}: {error}"
        raise FieldError(field, msg) from None
    return Tensor.from_array(spec.datatype, array)


def json_tensor(signature: Signature, spec: TensorSpec, field: str, value: Any) -> Tensor:
    """A value as one element of JSON. Raises as `value_tensor` does."""
    if spec.datatype is not BYTES:
        return value_tensor(signature, spec, field, value)
    if isinstance(value, float) and not isfinite(value):  # which would become null
        raise FieldError(field, f"'{field}' must be a finite number")
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise FieldError(field, f"'{field}' cannot be encoded: {error}") from None
    return value_tensor(signature, spec, field, text)


def _shape(signature: Signature, spec: TensorSpec, count: int) -> tuple[int, ...] | None:
    """The shape of so many elements of one request, None if there is none."""
    dims = [_ONE, *spec.dims] if signature.max_batch_size > 0 else list(spec.dims)
    if -1 in spec.dims:
        fixed = 1
        for dim in dims:
            fixed *= 1 if dim == -1 else dim
        last = len(dims) - 1 - dims[::-1].index(-1)
        dims = [1 if dim == -1 else dim for dim in dims]
        if fixed == 0 or count % fixed:
            return None
        dims[last] = count // fixed
    total = 1
    for dim in dims:
        total *= dim
    return tuple(dims) if total == count else None


def text_bytes(tensor: Tensor) -> bytes:
    """The text of an output: its elements, one after another."""
    if tensor.is_encoded:
        data = tensor.data
        if len(data) >= _LENGTH_BYTES and len(data) - _LENGTH_BYTES == int.from_bytes(
            data[:_LENGTH_BYTES], "little"
        ):
            return bytes(data[_LENGTH_BYTES:])  # one element, as nearly always
        return b"".join(decode_bytes(data))
    return b"".join(tensor.array.ravel().tolist())


def text_of(tensor: Tensor) -> str:
    """The same, decoded."""
    return text_bytes(tensor).decode("utf-8", "replace")


def count_of(tensor: Tensor) -> int:
    """The number that an output tells: the sum of its elements."""
    if tensor.datatype is UINT32 and tensor.is_encoded and len(tensor.data) == UINT32.itemsize:
        return int.from_bytes(tensor.data, "little")
    array = tensor.array
    return int(array.item() if array.size == 1 else array.sum())


def json_of(name: str, tensor: Tensor) -> Any:
    """What an output of JSON says.

    Raises:
        InternalError: it is not JSON.
    """
    text = text_bytes(tensor)
    if not text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InternalError(f"the model's output '{name}' is not JSON") from None


def embeddings_of(name: str, tensor: Tensor, count: int) -> Array:
    """The embeddings of so many texts: an array of FP32, shape [count, length].

    Raises:
        InternalError: the output is something else.
    """
    if tensor.datatype is not FP32 or not tensor.shape or tensor.array.size == 0 or tensor.array.size % count:
        msg = (
            f"the model's output '{name}' is {tensor!r}, which is not an embedding for each of {count} texts"
        )
        raise InternalError(msg)
    return np.ascontiguousarray(tensor.array.reshape(count, -1), "<f4")
