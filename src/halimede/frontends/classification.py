"""The classification extension: an output's highest values, each with its index and label, as strings."""

from collections.abc import Generator, Iterator, Sequence
from math import prod
from typing import Final

import numpy as np

from halimede.core.datatypes import BF16, BOOL, BYTES, FP16, FP32, FP64
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Array, Tensor
from halimede.frontends.steps_of_work import whole

MAX_ELEMENTS = 1_000_000
MAX_CLASSES = 100_000
"""Classes of an output, which take a twentieth of a second."""

_STEP_ELEMENTS: Final = 65_536
_STEP_CLASSES: Final = 2_000
"""Values that are put in order, and classes that are written, in about a millisecond."""


def classify(tensor: Tensor, count: int, labels: Sequence[str], batched: bool) -> Tensor:
    """BYTES ``<value>:<index>[:<label>]`` of the `count` highest values, highest first.

    Args:
        tensor: the output; each row of a batch is classified for itself, flattened.
        count: how many classes; fewer come if the output has fewer.
        labels: index → label; an index beyond has none, nor has one whose label is empty.
        batched: whether the first dimension is the batch's.

    Raises:
        InvalidArgumentError: the datatype has no order that makes sense, or the output is too large, or there would be
            too many classes.
    """
    return whole(classify_in_steps(tensor, count, labels, batched))


def takes_steps(tensor: Tensor, count: int) -> bool:
    """Whether `classify` takes longer than a millisecond or two."""
    size = prod(tensor.shape)
    return size > _STEP_CLASSES and (size > _STEP_ELEMENTS or tensor.shape[0] * count > _STEP_CLASSES)


def classify_in_steps(
    tensor: Tensor, count: int, labels: Sequence[str], batched: bool
) -> Generator[None, None, Tensor]:
    """Does what `classify` does, in steps; the first of them raises its errors."""
    if tensor.datatype in {FP16, BF16, BOOL, BYTES}:
        msg = f"class result not available for output due to unsupported type '{tensor.datatype}'"
        raise InvalidArgumentError(msg)
    if prod(tensor.shape) > MAX_ELEMENTS:
        raise InvalidArgumentError("classification output tensor too large")
    rows = tensor.array.reshape(tensor.shape[0], -1) if _has_rows(tensor, batched) else _one_row(tensor)
    kept = min(count, rows.shape[1])
    if len(rows) * kept > MAX_CLASSES:
        msg = f"classification of {len(rows)} rows gives {len(rows) * kept} classes, and the maximum is {MAX_CLASSES}"
        raise InvalidArgumentError(msg)
    form = b"%f:%d" if tensor.datatype in {FP32, FP64} else b"%d:%d"
    texts: list[bytes] = []
    step = max(1, _STEP_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        order = _highest(some, kept)
        values = np.take_along_axis(some, order, 1).ravel()
        indices = order.ravel()
        for first in range(0, len(values), _STEP_CLASSES):
            if start or first:
                yield
            part = slice(first, first + _STEP_CLASSES)
            texts += _texts(form, values[part].tolist(), indices[part].tolist(), labels)
    classes = np.array(texts, dtype=np.object_).reshape(len(rows), kept)
    return Tensor.from_array(BYTES, classes if batched else classes.reshape(-1))


def _texts(
    form: bytes, values: Sequence[float], indices: Sequence[int], labels: Sequence[str]
) -> Iterator[bytes]:
    for pair in zip(values, indices, strict=True):
        index = pair[1]
        label = labels[index] if index < len(labels) else ""
        yield form % pair if not label else b"%b:%b" % (form % pair, label.encode())


def _has_rows(tensor: Tensor, batched: bool) -> bool:
    return batched and prod(tensor.shape) > 0


def _one_row(tensor: Tensor) -> Array:
    """An output without batch dimension as one row, and an empty one as rows without values."""
    if prod(tensor.shape) == 0 and tensor.shape:
        return np.empty((tensor.shape[0], 0), dtype=tensor.array.dtype)
    return tensor.array.reshape(1, -1)


def _highest(rows: Array, count: int) -> Array:
    """Of each row, indices of the highest values, highest first; of equals the lower index first; NaN last."""
    # Ascending order of these is descending order of the values, without overflow for any integer.
    keys = -rows if rows.dtype.kind == "f" else ~rows
    if count < keys.shape[1]:
        chosen = np.sort(np.argpartition(keys, count, 1)[:, :count], 1)
        order = np.argsort(np.take_along_axis(keys, chosen, 1), 1, kind="stable")
        best: Array = np.take_along_axis(chosen, order, 1)
        return best
    return np.argsort(keys, 1, kind="stable")
