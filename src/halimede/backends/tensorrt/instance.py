"""One instance of a TensorRT model: an execution context a profile, a stream, and memory on both sides.

The engine and its weights are shared by all instances of a device; a context is its own. Neither TensorRT nor CUDA is
imported here: contexts and CUDA's calls are given.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_char
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.devices import DeviceMemory, Piece, Rows, inputs_on, joined_shape, keep, staying, taken
from halimede.backends.tensorrt.blocks import Blocks
from halimede.backends.tensorrt.engine import EngineDescription, EngineTensor, Profile, Shape
from halimede.backends.tensorrt.profiles import pick
from halimede.core.device_tensors import CUDA
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Array

_DEFAULT_STREAM = 0
"""The stream that every device has."""


class Cuda(Protocol):
    """CUDA's calls: see `CudaRuntime`."""

    def use_device(self, device: int) -> None:
        """Make the device the calling thread's."""

    def create_stream(self, priority: int) -> int:
        """A new stream."""

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back."""

    def allocate(self, size: int) -> int:
        """Memory of the device."""

    def free(self, address: int) -> None:
        """Give memory of the device back."""

    def allocate_pinned(self, size: int) -> int:
        """Pinned memory of the host."""

    def free_pinned(self, address: int) -> None:
        """Give pinned memory back."""

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy to the device."""

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy to the host."""

    def copy_on_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the device to the device."""

    def wait(self, stream: int) -> None:
        """Return when the stream has done everything."""


class Buffer:
    """Memory for one tensor, on the host and on the device, which grows with what it must hold.

    Attributes:
        host: its address on the host.
        device: its address on the device; 0 for a tensor that stays on the host.
    """

    def __init__(self, cuda: Cuda, *, on_host: bool, pinned: bool) -> None:
        self.host = 0
        self.device = 0
        self._cuda = cuda
        self._on_host = on_host
        self._pinned = pinned or on_host
        self._bytes: Array = np.empty(0, np.uint8)

    @property
    def address(self) -> int:
        """Where the engine reads or writes it."""
        return self.host if self._on_host else self.device

    def reserve(self, size: int) -> None:
        """Make room for so many bytes; what was in it may be lost.

        Raises:
            OutOfMemoryError: there is not enough memory.
        """
        size = max(size, 1)  # an empty tensor needs an address too
        if size <= len(self._bytes):
            return
        self.free()
        if not self._on_host:
            self.device = self._cuda.allocate(size)
        if self._pinned:
            self.host = self._cuda.allocate_pinned(size)
            memory: Any = (c_char * size).from_address(self.host)
            self._bytes = np.frombuffer(memory, np.uint8)
        else:
            self._bytes = np.empty(size, np.uint8)
            self.host = int(self._bytes.ctypes.data)

    def view(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """The host's memory as an array."""
        array: Array = self._bytes[: prod(shape) * dtype.itemsize].view(dtype)
        return array.reshape(shape)

    def free(self) -> None:
        """Give the memory back."""
        host, device = self.host, self.device
        self.host = self.device = 0
        self._bytes = np.empty(0, np.uint8)
        if host and self._pinned:
            self._cuda.free_pinned(host)
        if device:
            self._cuda.free(device)


@dataclass(frozen=True, slots=True)
class Plan:
    """What holds for all batches of the same shapes, one after the other.

    Attributes:
        shapes: of the inputs, in the engine's order.
        context: where they run, which knows shapes and addresses.
        inputs: the host's memory of each input.
        outputs: name → the host's memory of each output.
    """

    shapes: list[Shape]
    context: Any
    inputs: Sequence[tuple[EngineTensor, Buffer, Array]]
    outputs: Mapping[str, tuple[EngineTensor, Buffer, Array]]


class TensorRTInstance(Instance):
    """Runs batches in the context of the profile that fits them best."""

    may_block = True
    repeatable = True

    def __init__(
        self,
        cuda: Cuda,
        device: int,
        engine: EngineDescription,
        contexts: Sequence[tuple[Profile, Any]],
        reason: Callable[[], str],
        *,
        priority: int = 0,
        pinned: tuple[bool, bool] = (True, True),
    ) -> None:
        """Make the instance's stream; its memory is taken when batches need it.

        Args:
            cuda: CUDA's calls.
            device: the GPU's number.
            engine: what the engine says of itself.
            contexts: each profile with a `tensorrt.IExecutionContext` that uses it; at least one.
            reason: what TensorRT said last, for errors.
            priority: of the stream: see `CudaRuntime.create_stream`.
            pinned: whether inputs and outputs pass through pinned memory.
        """
        self._cuda = cuda
        self._device = device
        self.device = CUDA, device
        self._blocks = Blocks(cuda)
        self._engine = engine
        self._profiles = [profile for profile, _ in contexts]
        self._contexts = {profile.index: context for profile, context in contexts}
        self._reason = reason
        self._stream = cuda.create_stream(priority)
        self._closed = False
        self._plan: Plan | None = None
        self._scalars = [tensor.name for tensor in engine.inputs if not tensor.shape]
        self._shape_tensors = [tensor.name for tensor in engine.inputs if tensor.is_shape]
        self._names = [tensor.name for tensor in engine.inputs]
        self._on_host = {tensor.name for tensor in (*engine.inputs, *engine.outputs) if tensor.on_host}
        self._on_host.update(self._shape_tensors)
        self._buffers = {
            tensor.name: Buffer(cuda, on_host=tensor.on_host, pinned=way)
            for way, tensors in zip(pinned, (engine.inputs, engine.outputs), strict=True)
            for tensor in tensors
        }

    def choose_profiles(self) -> None:
        """Have each context use its profile.

        Raises:
            InternalError: TensorRT refuses.
        """
        for index, context in self._contexts.items():
            if not context.set_optimization_profile_async(index, self._stream):
                raise self._failure(f"cannot use the optimization profile {index}")
        self._cuda.wait(self._stream)

    def execute(self, batch: Batch) -> None:
        """Run the batch for the outputs that its requests want."""
        there = inputs_on(batch, self.device)
        for name in self._on_host & there.keys():
            del there[name]
        stays = staying(batch) - self._on_host
        arrays = batch.gather(there)
        self._cuda.use_device(self._device)
        try:
            pieces = {name: taken(name, tensors, self._stream) for name, tensors in there.items()}
            for name in pieces:  # tells shape and type, and has no elements
                spec = batch.signature.backend_inputs[name]
                arrays[name] = np.broadcast_to(spec.datatype.numpy.type(), joined_shape(batch, name))
            for name in self._scalars:  # the configuration has no scalars; it says one element instead
                arrays[name] = arrays[name].reshape(())
            wanted, kept = self._run(arrays, pieces, batch.wanted(), stays)
        except HalimedeError:
            self._settle()
            raise
        except Exception as error:  # what the bindings raise has no common base
            self._settle()
            raise self._failure(str(error)) from error
        # the next batch writes over this memory
        batch.scatter({name: array.copy() for name, array in wanted.items()})
        for name, memory in kept.items():
            keep(batch, name, memory, partial(self._copied, memory))

    def close(self) -> None:
        """Give back contexts, memory and the stream."""
        if self._closed:
            return
        self._closed = True
        self._cuda.use_device(self._device)
        self._plan = None
        self._contexts.clear()
        for buffer in self._buffers.values():
            buffer.free()
        self._blocks.close()
        self._cuda.destroy_stream(self._stream)

    def _run(
        self,
        arrays: Mapping[str, Array],
        pieces: Mapping[str, Sequence[Piece]],
        names: Sequence[str],
        stays: Collection[str],
    ) -> tuple[dict[str, Array], dict[str, DeviceMemory]]:
        """The outputs of those names: arrays in memory that the next run uses again, and those that stay.

        Args:
            arrays: the inputs, of those among the pieces only shape and type.
            pieces: the inputs that are on the device already.
            names: the outputs that are wanted.
            stays: which of them stay on the device.
        """
        cuda, stream = self._cuda, self._stream
        plan, shapes = self._plan, [arrays[name].shape for name in self._names]
        if plan is None or plan.shapes != shapes or self._shape_tensors:
            plan = self._prepare(arrays, shapes)
        for tensor, buffer, memory in plan.inputs:
            if not memory.nbytes:
                continue
            if tensor.name in pieces:
                target = buffer.device
                for piece in pieces[tensor.name]:
                    cuda.copy_on_device(target, piece.address, piece.size, stream)
                    target += piece.size
            elif not tensor.on_host:
                np.copyto(memory, arrays[tensor.name])
                cuda.copy_to_device(buffer.device, buffer.host, memory.nbytes, stream)
        if not plan.context.execute_async_v3(stream):
            raise self._failure("the engine refused to run")
        wanted: dict[str, Array] = {}
        kept: dict[str, DeviceMemory] = {}
        for name in names:
            tensor, buffer, memory = plan.outputs[name]
            if name in stays:
                assert tensor.datatype is not None
                block = self._blocks.take(memory.nbytes)
                if memory.nbytes:
                    cuda.copy_on_device(block.address, buffer.device, memory.nbytes, stream)
                shape = memory.shape or (1,)
                kept[name] = DeviceMemory(block.address, shape, tensor.datatype, (CUDA, self._device), block)
                continue
            if not tensor.on_host and memory.nbytes:
                cuda.copy_to_host(buffer.host, buffer.device, memory.nbytes, stream)
            wanted[name] = memory if memory.ndim else memory.reshape(1)
        cuda.wait(stream)
        return wanted, kept

    def _copied(self, memory: DeviceMemory, rows: Rows) -> Array:
        """A copy on the host of what has left the instance, which may be closed by now."""
        piece = memory[rows]
        array: Array = np.empty(piece.shape, piece.datatype.numpy)
        self._cuda.copy_to_host(array.ctypes.data, piece.address, piece.size, _DEFAULT_STREAM)
        self._cuda.wait(_DEFAULT_STREAM)
        return array

    def _prepare(self, arrays: Mapping[str, Array], shapes: list[Shape]) -> Plan:
        """Tell a context of the inputs' shapes, of the values that are shapes, and of where everything is."""
        self._plan = None
        values = {name: tuple(arrays[name].reshape(-1).tolist()) for name in self._shape_tensors}
        profile = pick(self._profiles, dict(zip(self._names, shapes, strict=True)), values)
        context = self._contexts[profile.index]
        inputs = []
        for tensor in self._engine.inputs:
            array, buffer = arrays[tensor.name], self._buffers[tensor.name]
            buffer.reserve(array.nbytes)
            memory = buffer.view(array.shape, array.dtype)
            if tensor.on_host:
                np.copyto(memory, array)
            if not context.set_input_shape(tensor.name, array.shape):
                raise self._failure(f"input '{tensor.name}' cannot have the shape {list(array.shape)}")
            self._point(context, tensor.name, buffer)
            inputs.append((tensor, buffer, memory))
        missing = context.infer_shapes()
        if missing:
            raise self._failure(f"the shapes of {', '.join(missing)} cannot be told")
        outputs = {tensor.name: self._prepare_output(context, tensor) for tensor in self._engine.outputs}
        self._plan = plan = Plan(shapes, context, inputs, outputs)
        return plan

    def _prepare_output(self, context: Any, tensor: EngineTensor) -> tuple[EngineTensor, Buffer, Array]:
        """Make room for an output."""
        shape = tuple(context.get_tensor_shape(tensor.name))
        if any(size < 0 for size in shape):
            msg = (
                f"output '{tensor.name}' has a shape that depends on the values of inputs ({list(shape)}), "
                f"which the TensorRT backend does not have in this version"
            )
            raise InternalError(msg)
        assert tensor.datatype is not None
        dtype, buffer = tensor.datatype.numpy, self._buffers[tensor.name]
        buffer.reserve(prod(shape) * dtype.itemsize)
        self._point(context, tensor.name, buffer)
        return tensor, buffer, buffer.view(shape, dtype)

    def _point(self, context: Any, name: str, buffer: Buffer) -> None:
        if not context.set_tensor_address(name, buffer.address):
            raise self._failure(f"cannot use memory for '{name}'")

    def _settle(self) -> None:
        """Forget what was told, and wait for what is under way, so that the next batch finds the memory free."""
        self._plan = None
        try:
            self._cuda.wait(self._stream)
        except HalimedeError:
            return  # the error that led here says more

    def _failure(self, what: str) -> InternalError:
        said = self._reason()
        return InternalError(f"TensorRT: {what}" + (f": {said}" if said and said not in what else ""))
