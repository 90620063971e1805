"""Stand-ins for a TensorRT engine, its contexts and CUDA, in the host's memory.

What is put on a stream happens when the stream is waited for, in order, so that memory which is used again too early
shows as a wrong answer.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from halimede.core.errors import OutOfMemoryError
from halimede.core.tensors import Array

NUMPY: dict[str, np.dtype[Any]] = {
    "FLOAT": np.dtype("f4"),
    "HALF": np.dtype("f2"),
    "INT32": np.dtype("i4"),
    "INT64": np.dtype("i8"),
    "BOOL": np.dtype("?"),
}

Shapes = Sequence[Sequence[int]]
"""The least, best and largest."""


@dataclass
class FakeTensor:
    """An input or output of an engine."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "FLOAT"
    mode: str = "INPUT"
    location: str = "DEVICE"
    format: str = "LINEAR"
    is_shape: bool = False


def output(name: str, shape: tuple[int, ...], **rest: Any) -> FakeTensor:
    return FakeTensor(name, shape, mode="OUTPUT", **rest)


class FakeEngine:
    """What the backend uses of `tensorrt.ICudaEngine`."""

    def __init__(
        self,
        tensors: Sequence[FakeTensor],
        profiles: Sequence[dict[str, Shapes]],
        values: Sequence[dict[str, Shapes]] = (),
    ) -> None:
        self._tensors = {tensor.name: tensor for tensor in tensors}
        self._profiles = profiles
        self._values = values or [{} for _ in profiles]
        self.num_io_tensors = len(tensors)
        self.num_optimization_profiles = len(profiles)

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> Any:
        return SimpleNamespace(name=self._tensors[name].mode)

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name=self._tensors[name].dtype)

    def get_tensor_format(self, name: str) -> Any:
        return SimpleNamespace(name=self._tensors[name].format)

    def get_tensor_location(self, name: str) -> Any:
        return SimpleNamespace(name=self._tensors[name].location)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def is_shape_inference_io(self, name: str) -> bool:
        return self._tensors[name].is_shape

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> Shapes:
        fixed = self._tensors[name].shape
        return self._profiles[profile_index].get(name, (fixed, fixed, fixed))

    def get_tensor_profile_values(self, profile_index: int, name: str) -> Shapes:
        return self._values[profile_index].get(name, [])


class FakeCuda:
    """CUDA's calls on memory of the host; streams do their work when they are waited for."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.streams: dict[int, list[Callable[[], object]]] = {}
        self.devices: list[int] = []
        self.copies: list[tuple[str, int]] = []
        self.limit: int | None = None

    def use_device(self, device: int) -> None:
        self.devices.append(device)

    def capability(self, device: int) -> str:
        return f"9.{device}"

    def create_stream(self, priority: int) -> int:
        stream = 100 + len(self.streams)
        self.streams[stream] = []
        return stream

    def destroy_stream(self, stream: int) -> None:
        assert not self.streams.pop(stream), "work was under way"

    def allocate(self, size: int) -> int:
        if self.limit is not None and size > self.limit:
            raise OutOfMemoryError(f"cannot allocate {size} bytes on the GPU: out of memory")
        return self._new(self.memory, size)

    def free(self, address: int) -> None:
        del self.memory[address]

    def allocate_pinned(self, size: int) -> int:
        return self._new(self.pinned, size)

    def free_pinned(self, address: int) -> None:
        del self.pinned[address]

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        assert target in self.memory
        self._copy("to device", target, source, size, stream)

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        assert any(base <= source < base + len(block) for base, block in self.memory.items())
        self._copy("to host", target, source, size, stream)

    def copy_on_device(self, target: int, source: int, size: int, stream: int) -> None:
        for address in (target, source):
            blocks = self.memory.items()
            assert any(base <= address and address + size <= base + len(block) for base, block in blocks)
        self._copy("on device", target, source, size, stream)

    def wait(self, stream: int) -> None:
        work = self.streams[stream][:]
        self.streams[stream].clear()
        for each in work:
            each()

    def _copy(self, way: str, target: int, source: int, size: int, stream: int) -> None:
        self.copies.append((way, size))
        self.streams.setdefault(stream, []).append(lambda: ctypes.memmove(target, source, size))

    def _new(self, where: dict[int, Any], size: int) -> int:
        block = ctypes.create_string_buffer(b"\xaa" * size, size)
        address = ctypes.addressof(block)
        where[address] = block
        return address


@dataclass
class FakeContext:
    """What an instance uses of `tensorrt.IExecutionContext`: it runs `run` on what lies at the addresses."""

    tensors: Sequence[FakeTensor]
    cuda: FakeCuda
    run: Callable[[dict[str, Array]], dict[str, Array]]
    works: bool = True
    unknown: Sequence[str] = ()
    output_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    profile: int | None = None
    runs: int = 0
    inferences: int = 0

    def __post_init__(self) -> None:
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.profile = profile_index
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._shapes[name] = shape
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert memory
        self._addresses[name] = memory
        return True

    def infer_shapes(self) -> list[str]:
        self.inferences += 1
        return list(self.unknown)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self.output_shapes:
            return self.output_shapes[name]
        shapes = [tensor.shape for tensor in self.tensors if tensor.name == name]
        first = next(iter(self._shapes.values()))
        return tuple(first[index] if size == -1 else size for index, size in enumerate(shapes[0]))

    def execute_async_v3(self, stream_handle: int) -> bool:
        if not self.works:
            return False
        shapes = dict(self._shapes)
        outputs = {
            each.name: self.get_tensor_shape(each.name) for each in self.tensors if each.mode == "OUTPUT"
        }
        self.cuda.streams[stream_handle].append(lambda: self._compute(shapes, outputs))
        return True

    def _compute(self, shapes: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]]) -> None:
        self.runs += 1
        inputs = {name: self._at(name, shape) for name, shape in shapes.items()}
        for name, array in self.run(inputs).items():
            self._at(name, outputs[name])[...] = array

    def _at(self, name: str, shape: tuple[int, ...]) -> Array:
        (tensor,) = [each for each in self.tensors if each.name == name]
        address = self._addresses[name]
        assert (address in self.cuda.memory) == (tensor.location == "DEVICE")
        dtype = NUMPY[tensor.dtype]
        size = int(np.prod(shape)) * dtype.itemsize
        memory: Any = (ctypes.c_char * size).from_address(address)
        array: Array = np.frombuffer(memory, dtype)
        return array.reshape(shape)
