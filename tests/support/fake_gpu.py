"""A stand-in for a GPU, whose memory is the host's, and an instance that computes there."""

import ctypes
import threading
from typing import Any

import numpy as np

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.devices import DeviceMemory, Rows, inputs_on, joined_shape, keep, staying, taken
from halimede.core.datatypes import FP32, Datatype
from halimede.core.device_tensors import CUDA, DeviceTensor
from halimede.core.tensors import Array

STREAM = 77


class FakeGpu:
    """A GPU whose memory is the host's.

    Attributes:
        device: what DLPack calls it.
        downloads, uploads: copies to the host and from it.
        empty: set while nobody has memory of it.
    """

    def __init__(self, number: int = 0) -> None:
        self.device = CUDA, number
        self.downloads = self.uploads = 0
        self.empty = threading.Event()
        self.empty.set()
        self.used = 0

    def put(self, array: Array, datatype: Datatype = FP32) -> DeviceMemory:
        """The array as memory of the GPU."""
        block = _Block(self, array)
        return DeviceMemory(array.ctypes.data, array.shape, datatype, self.device, block)

    def download(self, memory: DeviceMemory) -> Array:
        """A copy on the host."""
        self.downloads += 1
        return at(memory.address, memory.size).view(memory.datatype.numpy).reshape(memory.shape).copy()

    def tensor(self, array: Array) -> DeviceTensor:
        """The array as what a step would hand on."""
        memory = self.put(array)
        return DeviceTensor(
            FP32, array.shape, memory, lambda: self.download(memory), "output 'OUT' of model 'a'"
        )


class _Block:
    """Memory that is in use."""

    def __init__(self, gpu: FakeGpu, array: Array) -> None:
        self._gpu = gpu
        self._array = array
        gpu.used += 1
        gpu.empty.clear()

    def __del__(self) -> None:
        self._gpu.used -= 1
        if not self._gpu.used:
            self._gpu.empty.set()


def at(address: int, size: int) -> Array:
    """The bytes there."""
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, np.uint8)


class AddsOne(Instance):
    """Gives INPUT0 + 1 as OUTPUT0, computed on the GPU.

    Attributes:
        taken: the tensors that were on the GPU already, in order.
        fails: what executions raise once they have their inputs.
    """

    may_block = True

    def __init__(self, gpu: FakeGpu) -> None:
        self.device = gpu.device
        self.taken: list[Any] = []
        self.fails: Exception | None = None
        self._gpu = gpu

    def execute(self, batch: Batch) -> None:
        """Run the batch."""
        there = inputs_on(batch, self.device)
        arrays = batch.gather(there)
        for name, tensors in there.items():
            pieces = taken(name, tensors, STREAM)
            self.taken += [tensor.elements for tensor in tensors]
            joined = np.concatenate([at(piece.address, piece.size) for piece in pieces])
            arrays[name] = joined.view(np.float32).reshape(joined_shape(batch, name))
        self._gpu.uploads += len(arrays) - len(there)
        if self.fails is not None:
            raise self.fails
        memory = self._gpu.put(arrays["INPUT0"] + 1)
        stays = staying(batch)
        batch.scatter({} if stays else {"OUTPUT0": self._gpu.download(memory)})
        for name in stays:
            keep(batch, name, memory, lambda rows: self._download(memory, rows))

    def _download(self, memory: DeviceMemory, rows: Rows) -> Array:
        return self._gpu.download(memory[rows])
