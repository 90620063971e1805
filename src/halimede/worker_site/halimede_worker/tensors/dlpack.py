"""DLPack: tensors handed to, and taken from, other libraries of this process without a copy.

A capsule holds a C structure that says where the elements are, and a function that gives them back. numpy makes the
ones that leave, over memory that it is told of: its capsules may be dropped at any time, in any thread and while an
exception is on its way, as no callback into Python may. What numpy has no word for, BF16 and memory of a GPU, is then
written into the structure. Capsules that arrive are read here, since numpy would refuse these.
"""

import ctypes
import datetime
from ctypes import pythonapi
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from ..errors import TritonModelException
from . import datatypes

CPU = 1
CUDA = 2
PINNED = 3

Device = Tuple[int, int]
"""DLPack's type of a device, and its number."""

HOST: Device = (CPU, 0)

_NAME = b"dltensor"
_USED_NAME = b"used_dltensor"

_LEGACY_STREAM = 1
"""The stream of CUDA that waits for all others, and all others for it."""

_Capsule = type(datetime.datetime_CAPI)

_CODES: Dict[int, Tuple[int, int]] = {
    datatypes.BOOL: (6, 8),
    datatypes.UINT8: (1, 8),
    datatypes.UINT16: (1, 16),
    datatypes.UINT32: (1, 32),
    datatypes.UINT64: (1, 64),
    datatypes.INT8: (0, 8),
    datatypes.INT16: (0, 16),
    datatypes.INT32: (0, 32),
    datatypes.INT64: (0, 64),
    datatypes.FP16: (2, 16),
    datatypes.FP32: (2, 32),
    datatypes.FP64: (2, 64),
    datatypes.BF16: (4, 16),
}
"""DLPack's code and bits of each datatype."""

_NUMBERS = {code: number for number, code in _CODES.items()}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# With prototypes of our own: other packages may set theirs on `pythonapi`, which all share.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", pythonapi))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", pythonapi)
)
_keep_for_ever = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", pythonapi))

_keep_for_ever(_USED_NAME)  # capsules point to it, and may outlive this module


class Memory:
    """Where elements are, and what keeps them there: numpy makes arrays of it by `__array_interface__`."""

    __slots__ = ("__array_interface__", "_keeper", "_release")

    def __init__(
        self, address: int, shape: Tuple[int, ...], dtype: "np.dtype[Any]", keeper: object = None
    ) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "version": 3,
        }
        self._keeper = keeper
        self._release: Optional[Callable[[], None]] = None

    def __del__(self) -> None:
        if self._release is not None:
            self._release()


def export(keeper: object, array: np.ndarray, datatype: int, device: Device) -> Any:
    """A capsule of the array's elements, which refers to `keeper` until whoever has them is done.

    Args:
        keeper: keeps the elements where they are.
        array: says where they are, in C order, and their shape.
        datatype: what they are.
        device: where they are.

    Raises:
        TritonModelException: this numpy knows nothing of DLPack.
    """
    if not hasattr(array, "__dlpack__"):
        raise TritonModelException(
            f"DLPack needs NumPy 1.22 or later in the environment of the model, which has {np.__version__}."
        )
    address = array.__array_interface__["data"][0]
    code, bits = _CODES[datatype]
    memory = Memory(address, array.shape, np.dtype(f"u{bits // 8}"), keeper)
    capsule = np.asarray(memory).__dlpack__()
    tensor = _DLManagedTensor.from_address(_get_pointer(capsule, _NAME)).tensor
    tensor.code = code
    tensor.device_type, tensor.device_id = device
    return capsule


def take(source: Any) -> Tuple[int, np.ndarray, Device]:
    """The tensor of a capsule, or of an object that gives one away.

    Returns:
        The datatype, an array over the elements, and the device where they are. The array keeps them there. If they
        are on a GPU, it may be asked for its shape and address, but not for its elements.

    Raises:
        TritonModelException: it is no tensor that can be taken, or was taken already.
    """
    if type(source) is not _Capsule:
        source = _capsule_of(source)
    if _get_name(source) != _NAME:
        raise TritonModelException(_misnamed(_get_name(source)))
    managed = _DLManagedTensor.from_address(_get_pointer(source, _NAME))
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides and not _is_contiguous(shape, tuple(tensor.strides[: tensor.ndim])):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    device = (tensor.device_type, tensor.device_id)
    if device[0] not in (CPU, CUDA, PINNED):
        raise TritonModelException(f"DLDevice type {device[0]} is not support by Python backend.")
    number = _NUMBERS.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if number is None:
        raise TritonModelException(
            f"DLPack dtype is not supported: code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes."
        )
    memory = Memory((tensor.data or 0) + tensor.byte_offset, shape, datatypes.ELEMENTS[number])
    array = np.empty(shape, datatypes.ELEMENTS[number]) if 0 in shape else np.asarray(memory)
    _set_name(source, _USED_NAME)
    memory._release = _release_of(managed)
    return number, array, device


def _capsule_of(source: Any) -> Any:
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TritonModelException(
            # with the original's spaces
            "Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and "
            "`__dlpack_device__` attributes"
        )
    # on a GPU it may still be computed: it is done once that stream gets to it
    stream = {"stream": _LEGACY_STREAM} if source.__dlpack_device__()[0] == CUDA else {}
    capsule = source.__dlpack__(**stream)
    if type(capsule) is not _Capsule:
        raise TritonModelException(
            f"Provided tensor is not supported. Its `__dlpack__` must return a capsule, not {type(capsule)}."
        )
    return capsule


def _misnamed(name: Optional[bytes]) -> str:
    if name is not None and name.startswith(b"used_"):
        return "The DLPack capsule was consumed already. A capsule can be consumed only once."
    text = None if name is None else name.decode(errors="replace")
    return f"Provided tensor is not supported. The name of the capsule must be 'dltensor', is {text!r}."


def _is_contiguous(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether the elements are in C order; strides count elements."""
    if 0 in shape:
        return True
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _release_of(managed: _DLManagedTensor) -> Optional[Callable[[], None]]:
    if not managed.deleter:
        return None
    delete = _Deleter(managed.deleter)
    address = ctypes.addressof(managed)
    return lambda: delete(address)
