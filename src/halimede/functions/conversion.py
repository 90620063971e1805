"""Values of a function to tensors, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halimede.core.datatypes import BYTES
from halimede.functions.signature import Fields, Form, FunctionSignature, Value

Array = npt.NDArray[Any]


class ResultError(Exception):
    """What a function gave is not what its annotation says."""


def argument(value: Value, array: Array) -> Any:
    """What the function sees of an input.

    Raises:
        ValueError: an element is no UTF-8, where the function wants text.
    """
    if value.form is Form.ARRAY:
        return array
    if value.form is Form.SCALAR:
        element = array.reshape(-1)[0]
        if value.datatype is not BYTES:
            return element.item()
        return _text(value, element) if value.text else bytes(element)
    elements = array.tolist()
    return _texts(value, elements) if value.text else elements


def _texts(value: Value, elements: list[Any]) -> list[Any]:
    return [_texts(value, each) if isinstance(each, list) else _text(value, each) for each in elements]


def _text(value: Value, element: bytes) -> str:
    try:
        return bytes(element).decode()
    except UnicodeDecodeError as error:
        msg = f"input '{value.name}' must be text in UTF-8: {error}"
        raise ValueError(msg) from None


def outputs(signature: FunctionSignature, result: Any, rows: int | None = None) -> list[Array]:
    """The outputs as arrays, in order.

    Args:
        signature: the function's.
        result: what it gave.
        rows: the rows of the batch; None if there is none.

    Raises:
        ResultError: it is not what the annotation says.
    """
    values = signature.outputs
    given: Sequence[Any]
    if signature.fields is Fields.ONE:
        given = (result,)
    elif signature.fields is Fields.ITEMS:
        if not isinstance(result, tuple) or len(result) != len(values):
            msg = f"the function must return a tuple of {len(values)} values; it returned {_shown(result)}"
            raise ResultError(msg)
        given = result
    elif signature.fields is Fields.KEYS:
        if not isinstance(result, dict) or result.keys() != {each.name for each in values}:
            names = ", ".join(repr(each.name) for each in values)
            raise ResultError(
                f"the function must return a dict with the keys {names}; it returned {_shown(result)}"
            )
        given = [result[each.name] for each in values]
    else:
        given = [getattr(result, each.name) for each in values]
    return [_output(value, each, rows) for value, each in zip(values, given, strict=True)]


def _output(value: Value, given: Any, rows: int | None) -> Array:
    dtype = value.datatype.numpy
    if value.datatype is BYTES:
        array = _strings(value, given)
    else:
        array = np.asarray(given)
        if array.dtype != dtype:
            if array.dtype.kind == "O" or not np.can_cast(array.dtype, dtype, "same_kind"):
                raise ResultError(
                    f"output '{value.name}' must be {value.datatype}; it is {array.dtype}: {_shown(given)}"
                )
            array = array.astype(dtype)
    if value.form is Form.SCALAR:
        if array.size != 1:
            raise ResultError(
                f"output '{value.name}' must be one value; it has {array.size}: {_shown(given)}"
            )
        return array.reshape(1)
    if len(array.shape) != len(value.shape) or any(
        wanted not in (-1, size) for wanted, size in zip(value.shape, array.shape, strict=True)
    ):
        raise ResultError(
            f"output '{value.name}' must have the shape {list(value.shape)}; it has {list(array.shape)}"
        )
    if rows is not None and array.shape[0] != rows:
        raise ResultError(
            f"output '{value.name}' must have a row for each of the {rows} of the batch; it has {array.shape[0]}"
        )
    return array


def _strings(value: Value, given: Any) -> Array:
    if isinstance(given, (str, bytes)):
        given = [given]
    array = np.asarray(given, dtype=np.object_)
    flat = array.reshape(-1)
    if not all(isinstance(each, (str, bytes)) for each in flat.tolist()):
        raise ResultError(f"output '{value.name}' must be str or bytes; it is {_shown(given)}")
    encoded = np.empty(flat.shape, np.object_)
    encoded[:] = [each.encode() if isinstance(each, str) else each for each in flat.tolist()]
    return encoded.reshape(array.shape)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
