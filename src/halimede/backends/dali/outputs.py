"""What a run of a DALI pipeline gave, cut into the outputs of the requests of a batch.

The samples of an output may differ in shape from request to request, but not within one request.
"""

from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from halimede.config.signature import TensorSpec, client_shape
from halimede.core.datatypes import ALL, BF16, BYTES
from halimede.core.errors import InternalError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor

_DATATYPES: Final = {datatype.numpy: datatype for datatype in ALL if datatype not in (BF16, BYTES)}


def cut(
    spec: TensorSpec, samples: Any, requests: list[InferRequest], *, split: bool
) -> list[Tensor | InternalError]:
    """One output, as a tensor a request; or why that request cannot have it.

    Args:
        spec: of the output.
        samples: DALI's list of samples, in the order of the rows of the requests.
        requests: those of the batch; of a model that batches.
        split: each sample is a number of rows.
    """
    ends = list(accumulate((request.batch_size for request in requests), initial=0))
    if samples.is_dense_tensor():
        whole: Array = samples.as_array()
        return [_tensor(spec, whole[start:end], split=split) for start, end in pairwise(ends)]
    return [
        _joined(spec, [np.asarray(samples.at(index)) for index in range(start, end)], split=split)
        for start, end in pairwise(ends)
    ]


def single(spec: TensorSpec, samples: Any) -> Tensor | InternalError:
    """One output of a model that does not batch: its only sample."""
    array = np.asarray(samples.at(0))
    return _seen(spec, array.reshape(1) if array.ndim == 0 else array, lead=0)


def _joined(spec: TensorSpec, arrays: list[Array], *, split: bool) -> Tensor | InternalError:
    shapes = {array.shape[1:] if split else array.shape for array in arrays}
    if len(shapes) > 1:
        return InternalError(
            f"output '{spec.name}' has samples of the shapes {', '.join(str(list(shape)) for shape in sorted(shapes))} "
            f"for one request, which cannot be one tensor; send them as requests of their own, or make the pipeline "
            f"give samples of one shape"
        )
    if split:
        return _seen(spec, np.concatenate(arrays), lead=1)
    return _tensor(spec, np.stack(arrays), split=False)


def _tensor(spec: TensorSpec, rows: Array, *, split: bool) -> Tensor | InternalError:
    if split and rows.ndim > 1:
        rows = rows.reshape(-1, *rows.shape[2:])
    return _seen(spec, rows, lead=1)


def _seen(spec: TensorSpec, array: Array, lead: int) -> Tensor | InternalError:
    """The array as clients see it: of the datatype and shape that the pipeline gives, whatever was configured."""
    datatype = _DATATYPES.get(array.dtype)
    if datatype is None:
        return InternalError(
            f"output '{spec.name}' is {array.dtype} in the pipeline, which no datatype is like"
        )
    try:
        return Tensor.from_array(datatype, array.reshape(client_shape(spec, array.shape, lead)))
    except InternalError as error:
        return error
