"""The classification extension: an output's highest values, each with its index and label, as strings."""

from collections.abc import Sequence
from math import prod

import numpy as np

from halimede.core.datatypes import BF16, BOOL, BYTES, FP16, FP32, FP64
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Array, Tensor

MAX_ELEMENTS = 1_000_000
MAX_CLASSES = 100_000
"""Classes of an output, which take a tenth of a second."""


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
    form = "{:f}:{}" if tensor.datatype in {FP32, FP64} else "{}:{}"
    classes = np.empty((len(rows), kept), dtype=np.object_)
    for position, row in enumerate(rows):
        order = _highest(row, kept)
        for rank, (value, index) in enumerate(zip(row[order].tolist(), order.tolist(), strict=True)):
            text = form.format(value, index)
            if index < len(labels) and labels[index]:
                text = f"{text}:{labels[index]}"
            classes[position, rank] = text.encode()
    return Tensor.from_array(BYTES, classes if batched else classes.reshape(-1))


def _has_rows(tensor: Tensor, batched: bool) -> bool:
    return batched and prod(tensor.shape) > 0


def _one_row(tensor: Tensor) -> Array:
    """An output without batch dimension as one row, and an empty one as rows without values."""
    if prod(tensor.shape) == 0 and tensor.shape:
        return np.empty((tensor.shape[0], 0), dtype=tensor.array.dtype)
    return tensor.array.reshape(1, -1)


def _highest(row: Array, count: int) -> Array:
    """Indices of the highest values, highest first; of equals the lower index first; NaN last."""
    # Ascending order of these is descending order of the values, without overflow for any integer.
    keys = -row if row.dtype.kind == "f" else ~row
    if count < len(keys):
        chosen = np.sort(np.argpartition(keys, count)[:count])
        best: Array = chosen[np.argsort(keys[chosen], kind="stable")]
        return best
    return np.argsort(keys, kind="stable")
