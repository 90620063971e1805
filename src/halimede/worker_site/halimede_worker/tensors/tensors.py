"""Tensors as models see them, and as messages hold them."""

from math import prod
from typing import Any, List, Optional, Tuple, Union

import numpy as np

from ..arguments import Signature
from ..errors import TritonModelException
from ..messages.memory import Memory, Outgoing, Reference, RegionOutput, address
from ..messages.regions import Piece
from . import dlpack, strings
from .datatypes import BF16, BYTES, ELEMENTS, number_of

EncodedTensor = Tuple[str, int, Tuple[int, ...], "Union[bytes, Reference]", bool]
"""A tensor in a message: name, number of the datatype, shape, elements or where they lie, whether others read them."""

ALIGNMENT = 16
"""Bytes: the elements of a received tensor begin at a multiple of it."""

_NEW = Signature.constructor("Tensor(name: str, array: numpy.ndarray)")
_FROM_DLPACK = Signature.function("from_dlpack(name: str, tensor: object)")


class Tensor:
    """An input or an output: a name, a datatype, a shape and the elements.

    A tensor that was received is decoded when its elements are first asked for.

    Args:
        name: of the input or output; text, or UTF-8 bytes.
        array: the elements; their dtype is bool, an integer's, a float's of 16, 32 or 64 bits, or for BYTES object or
            `S`. The array is not copied if it is C-contiguous, and read when the tensor is sent; BYTES are read now.

    Raises:
        TypeError: an argument is of another type.
        TritonModelException: the name is empty, or no datatype is like the array's dtype.
    """

    __module__ = "c_python_backend_utils"

    # Either _array or _data has the elements:
    # _array, as `as_numpy` gives them;
    # _data, as they were received, perhaps in a client's region, or, of what numpy has no form for, as an array of the
    # same bytes.
    # BYTES that the model made are an exception, with both: _data is what the array was when they were made.
    __slots__ = ("__weakref__", "_array", "_data", "_datatype", "_device", "_name", "_shape", "_shared")

    _name: str
    _datatype: int
    _shape: Tuple[int, ...]
    _array: Optional[np.ndarray]
    _data: "Union[bytes, np.ndarray, Piece, None]"
    _shared: bool
    _device: dlpack.Device

    def __init__(self, name: "str | bytes", array: np.ndarray, /) -> None:
        if type(name) is not str or not name.isascii():
            name = _NEW.text("name", name)
        if not isinstance(array, np.ndarray):
            raise _NEW.mismatch("array", "numpy.ndarray", array)
        if not name:
            raise _nameless()
        datatype = number_of(array.dtype)
        if not datatype:
            raise TritonModelException("NumPy dtype is not supported.")
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._name = name
        self._datatype = datatype
        self._shape = array.shape
        self._array = array
        self._data = strings.encode(array) if datatype == BYTES else None
        self._device = dlpack.HOST

    def name(self) -> str:
        """What the model's configuration calls the input or output."""
        return self._name

    def triton_dtype(self) -> int:
        """The number of the datatype, as `numpy_to_triton_type` gives it; BF16 is 14."""
        return self._datatype

    def shape(self) -> List[int]:
        """The length of each dimension, batch dimension included."""
        return list(self._shape)

    def is_cpu(self) -> bool:
        """Whether the elements are in memory of the CPU."""
        return self._device[0] != dlpack.CUDA

    def as_numpy(self) -> np.ndarray:
        """The elements as an array of the tensor's shape, the same object at each call.

        Of a received tensor the array may be written to, and outlives the request. BYTES are objects, each `bytes`.

        Raises:
            TritonModelException: they are on a GPU, or of the datatype BF16.
        """
        array = self._array
        return array if array is not None else self._decode()

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the elements, which are not copied. It refers to the tensor until it is done with.

        Raises:
            TritonModelException: they are BYTES.
        """
        if self._datatype == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        array = self._array
        if array is None:
            array = self._data_array() if self._is_foreign() else self._decode()
        return dlpack.export(self, array, self._datatype, self._device)

    @staticmethod
    def from_dlpack(name: "str | bytes", tensor: Any) -> "Tensor":
        """A tensor of elements that another library has, which are not copied.

        Args:
            name: of the input or output.
            tensor: a DLPack capsule, or an object with `__dlpack__` and `__dlpack_device__`.

        Raises:
            TypeError: the name is no text.
            TritonModelException: the name is empty; or it is no such object, or a capsule that was consumed already;
                or the elements are not C-contiguous, of no datatype, or on a device that is no CPU or CUDA GPU.
        """
        name = _FROM_DLPACK.text("name", name)
        if not name:
            raise _nameless()
        datatype, array, device = dlpack.take(tensor)
        made = Tensor.__new__(Tensor)
        made._name = name
        made._datatype = datatype
        made._shape = array.shape
        made._device = device
        made._array, made._data = (None, array) if made._is_foreign() else (array, None)
        made._shared = False
        return made

    def __dlpack__(self, stream: Any = None) -> Any:
        """A DLPack capsule of the elements, like `to_dlpack`."""
        return self.to_dlpack()

    def __dlpack_device__(self) -> Tuple[int, int]:
        """DLPack's type of the device, and its number: (1, 0) for the CPU."""
        return self._device

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def _is_foreign(self) -> bool:
        """Whether numpy has no form for the elements."""
        return self._datatype == BF16 or self._device[0] == dlpack.CUDA

    def _decode(self) -> np.ndarray:
        """The array of a tensor that has none yet."""
        if self._device[0] == dlpack.CUDA:
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._datatype == BF16:
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        data = self._data
        if data is None:  # another thread was faster
            return self.as_numpy()
        if isinstance(data, Piece):
            data = data.take()
        array = self._strings(data) if self._datatype == BYTES else self._in_shape(data)
        if self._array is None:
            self._array = array
            self._data = None
        return self._array

    def _data_array(self) -> np.ndarray:
        """The array that stands for elements that numpy has no form for."""
        data = self._data
        assert data is not None, "it has no other form"
        if isinstance(data, Piece):
            data = data.take()
        if isinstance(data, bytes) or data.dtype != ELEMENTS[self._datatype]:
            self._data = data = self._in_shape(data)
        return data

    def _in_shape(self, data: "Union[bytes, np.ndarray]") -> np.ndarray:
        """The bytes as an array of the tensor's shape that may be written to."""
        copied = isinstance(data, bytes) or self._shared or address(data) % ALIGNMENT
        return np.ndarray(self._shape, ELEMENTS[self._datatype], bytearray(data) if copied else data)

    def _strings(self, data: "Union[bytes, np.ndarray]") -> np.ndarray:
        try:
            elements = strings.decode(data if isinstance(data, bytes) else data.data, prod(self._shape))
        except ValueError as error:
            raise TritonModelException(f"Tensor '{self._name}': {error}") from None
        return strings.array_of(elements).reshape(self._shape)


def _nameless() -> TritonModelException:
    return TritonModelException("Tensor name cannot be an empty string.")


_new = object.__new__
_HOST = dlpack.HOST


def decode_tensor(encoded: EncodedTensor, memory: Memory) -> Tensor:
    """The tensor that a message holds. It keeps the shared memory that it lies in."""
    tensor = _new(Tensor)
    tensor._name, tensor._datatype, tensor._shape, payload, tensor._shared = encoded
    tensor._array = None
    tensor._data = payload if isinstance(payload, bytes) else memory.piece(payload)
    tensor._device = _HOST
    return tensor


def encode_tensor(tensor: Tensor, outgoing: "Outgoing | RegionOutput") -> EncodedTensor:
    """The tensor for a message. One that was received and that nobody looked at goes as it came.

    Raises:
        TritonModelException: the elements are on a GPU.
        MemoryError: there is no shared memory for them.
    """
    data = tensor._array
    if data is None or tensor._datatype == BYTES:
        return _encode_data(tensor, outgoing)
    if type(data) is not np.ndarray:  # a masked array would put other elements in
        data = data.view(np.ndarray)
    return tensor._name, tensor._datatype, tensor._shape, outgoing.put(data, tensor), False


def _encode_data(tensor: Tensor, outgoing: "Outgoing | RegionOutput") -> EncodedTensor:
    """Of a tensor that nobody decoded, or of BYTES."""
    data = tensor._data
    if tensor._device[0] == dlpack.CUDA:
        raise TritonModelException(
            f"Tensor '{tensor._name}' is stored in GPU and cannot be sent: copy it to the CPU first."
        )
    payload: Union[bytes, Reference]
    array = tensor._array
    if isinstance(data, bytes):
        # what came inside a message is short enough for the inside of another
        payload = data if array is None else outgoing.put(np.frombuffer(data, np.uint8))
    elif data is not None:
        payload = outgoing.put(data.take() if isinstance(data, Piece) else data)
    else:
        assert array is not None, "it has a form"
        payload = outgoing.put(np.frombuffer(strings.encode(array), np.uint8))
    return tensor._name, tensor._datatype, tensor._shape, payload, False
