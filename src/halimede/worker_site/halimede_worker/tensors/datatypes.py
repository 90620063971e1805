"""Datatypes of tensors: the server's numbers, the names of the configuration, and what numpy calls them."""

from typing import Any, Dict, List, Optional

import numpy as np

BOOL = 1
UINT8 = 2
UINT16 = 3
UINT32 = 4
UINT64 = 5
INT8 = 6
INT16 = 7
INT32 = 8
INT64 = 9
FP16 = 10
FP32 = 11
FP64 = 12
BYTES = 13
BF16 = 14  # numpy has nothing like it

_TYPES: Dict[int, Any] = {
    BOOL: np.bool_,
    UINT8: np.uint8,
    UINT16: np.uint16,
    UINT32: np.uint32,
    UINT64: np.uint64,
    INT8: np.int8,
    INT16: np.int16,
    INT32: np.int32,
    INT64: np.int64,
    FP16: np.float16,
    FP32: np.float32,
    FP64: np.float64,
    BYTES: np.object_,
}

_NAMES = {
    BOOL: "TYPE_BOOL",
    UINT8: "TYPE_UINT8",
    UINT16: "TYPE_UINT16",
    UINT32: "TYPE_UINT32",
    UINT64: "TYPE_UINT64",
    INT8: "TYPE_INT8",
    INT16: "TYPE_INT16",
    INT32: "TYPE_INT32",
    INT64: "TYPE_INT64",
    FP16: "TYPE_FP16",
    FP32: "TYPE_FP32",
    FP64: "TYPE_FP64",
    BYTES: "TYPE_STRING",
}

TRITON_STRING_TO_NUMPY: Dict[str, Any] = {name: _TYPES[number] for number, name in _NAMES.items()}
"""The types by the names of the configuration."""
TRITON_STRING_TO_NUMPY["TYPE_BOOL"] = bool  # models compare it to Python's own

ELEMENTS: List["np.dtype[Any]"] = [
    np.dtype(_TYPES.get(number, np.uint16 if number == BF16 else np.uint8)) for number in range(BF16 + 1)
]
"""By number, the elements of an array that holds such a tensor; BF16 as the bits of its elements."""

_NUMBERS: Dict["np.dtype[Any]", int] = {np.dtype(kind): number for number, kind in _TYPES.items()}


def number_of(dtype: "np.dtype[Any]") -> int:
    """The number of the datatype that tensors of this dtype have, 0 if none has.

    `S` dtypes are BYTES as objects are. The byte order has to be the machine's.
    """
    return _NUMBERS.get(dtype) or (BYTES if dtype.kind == "S" else 0)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a datatype as the configuration names it: `TYPE_FP32` is `numpy.float32`.

    Raises:
        KeyError: there is no such name, or numpy has no such type (`TYPE_BF16`).
    """
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Optional[Any]:
    """The numpy type of a datatype's number, None if there is none."""
    return _TYPES.get(data_type)


def numpy_to_triton_type(data_type: Any) -> Optional[int]:
    """The number of the datatype of a numpy type or dtype, None if there is none."""
    for number, kind in _TYPES.items():
        if data_type == kind:
            return number
    return BYTES if data_type == np.bytes_ else None
