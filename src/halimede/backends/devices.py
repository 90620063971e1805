"""Inputs that are on an instance's device already, and outputs that stay there: see `DeviceTensor`.

What stays was waited for by the instance that computed it, so that errors and times are its own; a consumer names its
stream all the same, as DLPack has it. Memory is let go of only when the consumer has waited for its own work.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple, Protocol

import numpy as np

from halimede.backends.batch import Batch, wrong_rows
from halimede.config.signature import client_shape
from halimede.core.datatypes import BY_NUMBER, BYTES, Datatype
from halimede.core.device_tensors import Device, DeviceTensor, Elements, device_name
from halimede.core.errors import InternalError
from halimede.core.tensors import Array
from halimede_worker.tensors import dlpack

Rows = slice | EllipsisType
"""Rows of a batch that are one request's; an ellipsis for all of what there is."""


class DeviceArray(Elements, Protocol):
    """An output of a batch, in the memory of a device."""

    @property
    def shape(self) -> Sequence[int]:
        """Its shape."""

    def __getitem__(self, rows: Rows) -> "DeviceArray":
        """Those rows of it, which are not copied."""


class DeviceMemory:
    """Memory of a device by its address, as DLPack passes it on.

    Args:
        address: where the elements are, in row-major order. They are computed.
        shape: their shape.
        datatype: what they are.
        device: whose memory it is.
        keeper: what keeps it; referred to for as long as somebody has the memory.
    """

    __slots__ = ("_device", "_keeper", "address", "datatype", "shape")

    def __init__(
        self, address: int, shape: tuple[int, ...], datatype: Datatype, device: Device, keeper: object
    ) -> None:
        self.address = address
        self.shape = shape
        self.datatype = datatype
        self._device = device
        self._keeper = keeper

    @property
    def size(self) -> int:
        """How many bytes it is."""
        return prod(self.shape) * self.datatype.itemsize

    def __getitem__(self, rows: Rows) -> "DeviceMemory":
        if isinstance(rows, EllipsisType):
            return self
        start, end, _ = rows.indices(self.shape[0])
        row = prod(self.shape[1:]) * self.datatype.itemsize
        shape = (end - start, *self.shape[1:])
        return DeviceMemory(self.address + start * row, shape, self.datatype, self._device, self._keeper)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """A capsule; no stream has to wait, as all is computed."""
        if copy or (dl_device is not None and tuple(dl_device) != self._device):
            raise BufferError(f"memory of {device_name(self._device)} is passed on where it is, uncopied")
        memory = dlpack.Memory(self.address, self.shape, self.datatype.numpy)
        return dlpack.export(self._keeper, np.asarray(memory), self.datatype.number, self._device)

    def __dlpack_device__(self) -> Device:
        """Where it is."""
        return self._device


class Piece(NamedTuple):
    """What was taken of one request: an address on the device, bytes, and what keeps them there."""

    address: int
    size: int
    keeper: object


def inputs_on(batch: Batch, device: Device | None) -> dict[str, list[DeviceTensor]]:
    """Inputs that every request of the batch has on the device: name → a tensor a request."""
    found: dict[str, list[DeviceTensor]] = {}
    for name in batch.requests[0].inputs:
        tensors = [request.inputs[name] for request in batch.requests]
        if name in batch.signature.filled and len({each.shape for each in tensors}) > 1:
            continue  # what is filled up is made on the host
        there = [each for each in tensors if isinstance(each, DeviceTensor) and each.device == device]
        if len(there) == len(tensors):
            found[name] = there
    return found


def staying(batch: Batch) -> set[str]:
    """Outputs that stay on the device: whoever wants one in this batch takes it there."""
    names = set(batch.requests[0].on_device)
    for request in batch.requests if names else ():
        names -= {
            name for name in request.outputs or batch.signature.outputs if name not in request.on_device
        }
    if batch.states is not None:
        names -= {*batch.states.outputs}  # what is kept of them is on the host
    if batch.signature.filled and len(batch.requests) > 1:  # they are cut on the host
        names = {name for name in names if batch.signature.outputs[name].dims[:1] != (-1,)}
    return {
        name
        for name in names
        if batch.signature.outputs[name].datatype is not BYTES and name not in batch.signature.scattered
    }


def taken(name: str, tensors: Sequence[DeviceTensor], stream: int | None) -> list[Piece]:
    """The memory of an input, which may be read on the stream while the pieces are held.

    Raises:
        InternalError: the memory cannot be had.
    """
    pieces = []
    for tensor in tensors:
        try:
            number, array, _ = dlpack.take(tensor.elements.__dlpack__(stream=stream))
        except Exception as error:  # errors of frameworks have no common base
            raise refused(name, tensor, error) from error
        if BY_NUMBER[number] is not tensor.datatype or array.nbytes != tensor.byte_size:
            found = (
                f"it is {BY_NUMBER[number]} {list(array.shape)}, not {tensor.datatype} {list(tensor.shape)}"
            )
            raise refused(name, tensor, found)
        pieces.append(Piece(array.ctypes.data, array.nbytes, array))
    return pieces


def joined_shape(batch: Batch, name: str) -> tuple[int, ...]:
    """The shape of an input of all requests of the batch together, as `Batch.gather` gives it."""
    spec, shapes = (
        batch.signature.backend_inputs[name],
        [request.inputs[name].shape for request in batch.requests],
    )
    if spec.ragged:
        return (sum(map(prod, shapes)),)
    return shapes[0] if len(shapes) == 1 else (batch.size, *shapes[0][1:])


def refused(name: str, tensor: DeviceTensor, why: object) -> InternalError:
    """The error of an input that cannot be taken from the device."""
    return InternalError(
        f"input '{name}' cannot take over {tensor.origin} on {device_name(tensor.device)}: {why}"
    )


def keep(batch: Batch, name: str, whole: DeviceArray, copy: Callable[[Rows], Array]) -> None:
    """Answer each request that wants the output with its rows, on the device; after `Batch.scatter`.

    Args:
        batch: the batch, whose responses are set.
        name: the output.
        whole: all rows.
        copy: copies rows to the host.

    Raises:
        InternalError: the output has not as many rows as the batch.
    """
    spec, lead = batch.signature.outputs[name], int(batch.signature.max_batch_size > 0)
    if lead and tuple(whole.shape[:1]) != (batch.size,):
        raise wrong_rows(name, tuple(whole.shape), batch.size)
    start = 0
    for request, response in zip(batch.requests, batch.responses, strict=True):
        end = start + request.batch_size
        rows: Rows = ... if len(batch.requests) == 1 else slice(start, end)
        start = end
        if request.outputs and name not in request.outputs:
            continue
        piece = whole[rows]
        origin = f"output '{name}' of model '{request.model_name}'"
        shape = tuple(piece.shape)
        tensor = DeviceTensor(spec.datatype, shape, piece, partial(copy, rows), origin)
        if spec.reshaped:
            tensor = tensor.reshaped(client_shape(spec, shape, lead))
        response.outputs[name] = tensor
