"""Ragged batches: inputs of different shapes joined flat, tensors that tell how, and outputs cut apart again.

requests          RAGGED [1, 2]   RAGGED [1, 4]       RAGGED [1, 1]
the model's input [ a0, a1,       b0, b1, b2, b3,     c0 ]               flat, one request after the other
element counts    [ 2,            4,                  1 ]                made by `batch_input_values`
the model's output[ x0, x1,       y0, y1, y2, y3,     z0 ]
responses         OUT [1, 2]      OUT [1, 4]          OUT [1, 1]         cut by `cut_like_inputs`, as views
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import numpy as np

from halimede.config.model_config_pb2 import BatchInput
from halimede.config.signature import TensorSpec, match_wildcards
from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import InternalError
from halimede.core.tensors import Array, Tensor

Shape = tuple[int, ...]


def batch_input_values(batch_input: BatchInput, shapes: Sequence[Shape]) -> Array:
    """A tensor that tells the model how a ragged input is made up (`BatchInput.Kind`).

    It has an element a request (one more with a leading zero), or for the kinds of item shapes a row, of shape
    ``[rank]``, for each row of the requests. BATCH_MAX_ELEMENT_COUNT_AS_SHAPE gives zeros, as only its size matters.

    Args:
        batch_input: of the configuration.
        shapes: of the source input, one for each request, the batch dimension included.

    Raises:
        InternalError: a value is too large for the datatype to be exact.
    """
    kind = batch_input.kind
    datatype = BY_NUMBER[batch_input.data_type]
    counts = [prod(shape) for shape in shapes]
    if kind == BatchInput.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
        return np.zeros(max(counts), datatype.numpy)
    if kind == BatchInput.BATCH_ACCUMULATED_ELEMENT_COUNT:
        counts = list(accumulate(counts))
    elif kind == BatchInput.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
        counts = [0, *accumulate(counts)]
    elif kind != BatchInput.BATCH_ELEMENT_COUNT:
        counts = [size for shape in shapes for _ in range(shape[0]) for size in shape[1:]]
    exact = np.array(counts, np.int64)
    values: Array = exact.astype(datatype.numpy)
    if not np.array_equal(values, exact):
        msg = (
            f"batch input '{batch_input.target_name[0]}' would have to hold {exact.max()}, which {datatype} "
            f"cannot hold exactly; send fewer elements at a time, or use TYPE_INT32"
        )
        raise InternalError(msg)
    if kind == BatchInput.BATCH_ITEM_SHAPE:
        return values.reshape(sum(shape[0] for shape in shapes), len(shapes[0]) - 1)
    return values


def cut_like_inputs(
    spec: TensorSpec, array: Array, source: str, shapes: Sequence[Shape], *, batched: bool
) -> list[Tensor]:
    """An output of all requests, one after the other, cut into one tensor a request: views of `array`.

    A piece has the dims of the configuration, in which a variable one is what the source input has at its place.

    Args:
        spec: the output.
        array: of any shape; only the order of its elements counts.
        source: the input that says the sizes.
        shapes: its shape in each request.
        batched: the first dimension is the batch.

    Raises:
        InternalError: there are more elements than the requests' pieces have, or fewer.
    """
    pieces = [_piece(spec, shape, batched=batched) for shape in shapes]
    total = sum(map(prod, pieces))
    if total != array.size:
        msg = (
            f"output '{spec.name}' has shape {list(array.shape)}, which is {array.size} elements; scattered with the "
            f"shapes of input '{source}' of {len(shapes)} request{'s' * (len(shapes) > 1)}, it should have {total}"
        )
        raise InternalError(msg)
    flat = array.reshape(-1)
    tensors: list[Tensor] = []
    start = 0
    for shape in pieces:
        end = start + prod(shape)
        tensors.append(Tensor.from_array(spec.datatype, flat[start:end].reshape(shape)))
        start = end
    return tensors


def _piece(spec: TensorSpec, shape: Shape, *, batched: bool) -> Shape:
    """The shape, as clients see it, of the output of a request whose source input has that shape."""
    lead, sizes = (shape[:1], shape[1:]) if batched else ((), shape)
    tail = tuple([sizes[axis] if dim == -1 else dim for axis, dim in enumerate(spec.backend_dims)])
    return lead + (match_wildcards(tail, spec.backend_dims, spec.dims) if spec.reshaped else tail)
