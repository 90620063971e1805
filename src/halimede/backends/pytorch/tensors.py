"""Arrays as PyTorch's tensors and back, without a copy where that is safe."""

import warnings
from collections.abc import Sequence

import numpy as np
import torch

from halimede.core.datatypes import (
    BF16,
    BOOL,
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
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Array

DATATYPES = {
    torch.bool: BOOL,
    torch.uint8: UINT8,
    torch.uint16: UINT16,
    torch.uint32: UINT32,
    torch.uint64: UINT64,
    torch.int8: INT8,
    torch.int16: INT16,
    torch.int32: INT32,
    torch.int64: INT64,
    torch.float16: FP16,
    torch.bfloat16: BF16,
    torch.float32: FP32,
    torch.float64: FP64,
}


def from_array(array: Array, datatype: Datatype, *, copy: bool) -> torch.Tensor:
    """The tensor over an array's memory, or over a copy of it.

    Args:
        array: the elements, perhaps read-only; BF16 as their 16 bits.
        datatype: what they are.
        copy: the program may write to the tensor, so it gets memory of its own.
    """
    # kernels read with instructions that need an element's alignment; a view on a message may lack it
    flags = array.flags
    if copy or not (flags.aligned and flags.c_contiguous):
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if datatype is BF16 else tensor


def to_array(tensor: torch.Tensor) -> Array:
    """The tensor's elements, on the CPU, not copied if they are there and in order; BF16 as their 16 bits."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    tensor = tensor.contiguous().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    array: Array = tensor.numpy()
    return array


def to_strings(name: str, array: Array) -> list[str]:
    """The strings of input `name` as the flat list that PyTorch's programs take.

    Raises:
        InvalidArgumentError: one is not UTF-8.
    """
    try:
        return [element.decode() for element in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        msg = (
            f"input '{name}' holds a string that is not UTF-8 ({error.reason} at byte {error.start}); PyTorch "
            f"takes only UTF-8"
        )
        raise InvalidArgumentError(msg) from error


def from_strings(strings: Sequence[str]) -> Array:
    """The strings as a flat array of BYTES."""
    array = np.empty(len(strings), np.object_)
    array[:] = [string.encode() for string in strings]
    return array


def _silence() -> None:
    """Have PyTorch's one warning of memory that it must not write to; a program that gets such memory does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"0", np.uint8))


_silence()
