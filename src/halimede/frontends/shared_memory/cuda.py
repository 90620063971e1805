"""Regions of GPUs' memory, which clients share by handles of CUDA's IPC.

An input in one is a tensor of that GPU: an instance there takes it as it is, and anything else gets a copy. CUDA's
driver is called without a package of its own, as it comes with the GPU; its primary context is the one that all
frameworks of the process use.
"""

import ctypes
import logging
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from halimede.backends.devices import DeviceMemory
from halimede.core.datatypes import BYTES, Datatype
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.regions import Region
from halimede.core.tensors import Array, Tensor

logger = logging.getLogger("halimede")

HANDLE_BYTES: Final = 64

_LAZY_PEER_ACCESS: Final = 1


class CudaMemory(Protocol):
    """Memory of GPUs that other processes have."""

    def open(self, handle: bytes, device: int) -> tuple[int, int]:
        """Address and length of the memory that a handle stands for.

        Raises:
            InternalError: it stands for none of that GPU's.
        """

    def close(self, address: int, device: int) -> None:
        """Give it back."""

    def read(self, target: Array, address: int, device: int) -> None:
        """Copy from the GPU; returns when that is done.

        Raises:
            InternalError: the GPU cannot.
        """

    def write(self, address: int, source: Array, device: int) -> None:
        """Copy to the GPU; returns when that is done.

        Raises:
            InternalError: the GPU cannot.
        """

    def copy(self, target: int, source: int, size: int, device: int) -> None:
        """Copy on the GPU; returns when that is done.

        Raises:
            InternalError: the GPU cannot.
        """


class CudaRegion(Region):
    """A registered region of a GPU's memory.

    Attributes:
        device_id: the GPU.
        address: where it begins.
        memory: what reads and writes it.
    """

    __slots__ = ("address", "device_id", "memory")

    def __init__(self, name: str, device_id: int, byte_size: int, address: int, memory: CudaMemory) -> None:
        """The region that was opened at `address`, which it gives back in the end."""
        super().__init__(name, byte_size)
        self.device_id = device_id
        self.address = address
        self.memory = memory
        self.on_close.add(self._close)

    def _close(self) -> None:
        try:
            self.memory.close(self.address, self.device_id)
        except HalimedeError as error:
            logger.error("shared memory region '%s': %s", self.name, error)

    def piece(self, offset: int, length: int) -> "CudaPiece":
        """A part of it; see `check_range`.

        Raises:
            InvalidArgumentError: it is not inside the region, or empty.
        """
        self.check_range(offset, length)
        return CudaPiece(self, self.address + offset, length)


class CudaPiece(NamedTuple):
    """A part of a region.

    Attributes:
        region: the region.
        address: where it begins.
        length: how many bytes it has.
    """

    region: CudaRegion
    address: int
    length: int

    def tensor(self, datatype: Datatype, shape: tuple[int, ...]) -> Tensor:
        """The input that lies there.

        Raises:
            InternalError: it is of strings, and the GPU cannot give them.
        """
        if datatype is BYTES:
            return Tensor(datatype, shape, self._bytes().data)
        if self.length != np.prod(shape, dtype=np.float64) * datatype.itemsize:
            return Tensor(datatype, shape, bytes(self.length))  # which will be refused for its size
        device = CUDA, self.region.device_id
        memory = DeviceMemory(self.address, shape, datatype, device, self.region)
        copy = self._bytes
        origin = f"an input in shared memory region '{self.region.name}'"
        return DeviceTensor(datatype, shape, memory, lambda: copy().view(datatype.numpy), origin)

    def put(self, tensor: Tensor) -> None:
        """Put an output of no more bytes there.

        Raises:
            InternalError: the GPU cannot take it.
        """
        region = self.region
        if isinstance(tensor, DeviceTensor) and tensor.device == (CUDA, region.device_id):
            elements = tensor.elements
            if isinstance(elements, DeviceMemory):
                region.memory.copy(self.address, elements.address, tensor.byte_size, region.device_id)
                return
        source = np.frombuffer(tensor.data, np.uint8)
        if source.size:
            region.memory.write(self.address, source, region.device_id)

    def _bytes(self) -> Array:
        data = np.empty(self.length, np.uint8)
        self.region.memory.read(data, self.address, self.region.device_id)
        return data


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class CudaDriver:
    """CUDA's driver. Its methods may be called from any thread."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def open(self, handle: bytes, device: int) -> tuple[int, int]:
        """Address and length of the memory that a handle stands for.

        Raises:
            InternalError: it stands for none of that GPU's.
        """
        if len(handle) != HANDLE_BYTES:
            raise InternalError(f"a handle has {HANDLE_BYTES} bytes, not {len(handle)}")
        self._use(device)
        opened = _Handle()
        ctypes.memmove(ctypes.byref(opened), handle, HANDLE_BYTES)
        address, base, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, _LAZY_PEER_ACCESS)
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
        return address.value, size.value

    def close(self, address: int, device: int) -> None:
        """Give it back.

        Raises:
            InternalError: the GPU has failed.
        """
        self._use(device)
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def read(self, target: Array, address: int, device: int) -> None:
        """Copy from the GPU.

        Raises:
            InternalError: the GPU cannot.
        """
        self._use(device)
        host = ctypes.c_void_p(target.ctypes.data)
        self._call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(address), ctypes.c_size_t(target.nbytes))

    def write(self, address: int, source: Array, device: int) -> None:
        """Copy to the GPU.

        Raises:
            InternalError: the GPU cannot.
        """
        self._use(device)
        host = ctypes.c_void_p(source.ctypes.data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), host, ctypes.c_size_t(source.nbytes))
        self._call("cuCtxSynchronize")

    def copy(self, target: int, source: int, size: int, device: int) -> None:
        """Copy on the GPU.

        Raises:
            InternalError: the GPU cannot.
        """
        self._use(device)
        self._call("cuMemcpyDtoD_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
        self._call("cuCtxSynchronize")  # such a copy is only begun when the call returns

    def _use(self, device: int) -> None:
        """Make the GPU's primary context the thread's."""
        context = self._contexts.get(device)
        if context is None:
            number, context = ctypes.c_int(), ctypes.c_void_p()
            if device >= 1 << 31:
                raise InternalError(f"there is no GPU {device}")
            self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._contexts[device] = context
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            InternalError: it failed.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise InternalError(f"{name}: {(text.value or b'unknown error').decode()}")


def open_driver() -> CudaDriver | None:
    """CUDA's driver, None if there is no GPU."""
    with suppress(OSError):
        library = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if not library.cuInit(0) and not library.cuDeviceGetCount(ctypes.byref(count)) and count.value:
            return CudaDriver(library)
    return None
