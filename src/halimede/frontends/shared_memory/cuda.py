"""Regions of GPUs' memory, which clients share by handles of CUDA's IPC.

An input in one is a tensor of that GPU: an instance there takes it as it is, and anything else gets a copy. CUDA's
driver is called without a package of its own, as it comes with the GPU; its primary context is the one that all
frameworks of the process use. Copies have a stream of their own: they wait for no model's kernels.
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
from halimede_worker.tensors import dlpack

logger = logging.getLogger("halimede")

HANDLE_BYTES: Final = 64

_LAZY_PEER_ACCESS: Final = 1

_NON_BLOCKING: Final = 1
"""A stream that neither waits for the default one, on which models may compute, nor the other way round."""

_NO_STREAM: Final = -1
"""DLPack's word for no stream that would have to wait: what stays on a device is computed."""


class CudaMemory(Protocol):
    """Memory of GPUs that other processes have."""

    def open(self, handle: bytes, device: int) -> tuple[int, int]:
        """Address of the memory that a handle stands for, and how much there is from there.

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
            self._copy(tensor)
            return
        source = np.frombuffer(tensor.data, np.uint8)
        if source.size:
            region.memory.write(self.address, source, region.device_id)

    def _copy(self, tensor: DeviceTensor) -> None:
        """Put an output there that is on the region's GPU already."""
        region = self.region
        try:
            _, found, _ = dlpack.take(tensor.elements.__dlpack__(stream=_NO_STREAM))
        except Exception as error:  # errors of frameworks have no common base
            msg = f"{tensor.origin} cannot be copied into shared memory region '{region.name}': {error}"
            raise InternalError(msg) from error
        if found.nbytes:
            region.memory.copy(self.address, found.ctypes.data, found.nbytes, region.device_id)

    def _bytes(self) -> Array:
        data = np.empty(self.length, np.uint8)
        self.region.memory.read(data, self.address, self.region.device_id)
        return data


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class _Gpu(NamedTuple):
    """A GPU in use: the primary context, and the stream of our copies."""

    context: ctypes.c_void_p
    stream: ctypes.c_void_p


class CudaDriver:
    """CUDA's driver. Its methods may be called from any thread."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._gpus: dict[int, _Gpu] = {}

    def open(self, handle: bytes, device: int) -> tuple[int, int]:
        """Address of the memory that a handle stands for, and how much there is from there.

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
        return address.value, base.value + size.value - address.value

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
        host = ctypes.c_void_p(target.ctypes.data)
        self._copy("cuMemcpyDtoHAsync_v2", host, ctypes.c_uint64(address), target.nbytes, device)

    def write(self, address: int, source: Array, device: int) -> None:
        """Copy to the GPU.

        Raises:
            InternalError: the GPU cannot.
        """
        host = ctypes.c_void_p(source.ctypes.data)
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), host, source.nbytes, device)

    def copy(self, target: int, source: int, size: int, device: int) -> None:
        """Copy on the GPU.

        Raises:
            InternalError: the GPU cannot.
        """
        self._copy("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), size, device)

    def _copy(self, name: str, target: object, source: object, size: int, device: int) -> None:
        stream = self._use(device)
        self._call(name, target, source, ctypes.c_size_t(size), stream)
        self._call("cuStreamSynchronize", stream)

    def _use(self, device: int) -> ctypes.c_void_p:
        """Make the GPU's primary context the thread's: the stream for copies."""
        gpu = self._gpus.get(device)
        if gpu is None:
            gpu = self._gpus[device] = self._begin(device)
        else:
            self._call("cuCtxSetCurrent", gpu.context)
        return gpu.stream

    def _begin(self, device: int) -> _Gpu:
        number, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        if device >= 1 << 31:
            raise InternalError(f"there is no GPU {device}")
        self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return _Gpu(context, stream)

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
