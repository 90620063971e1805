"""Tensors between the server and a model in its process: they are handed on, not copied, where nobody else could tell.

The model's side stands for `halimede_worker.messages.memory.Memory`, the server's for
`halimede.workers.memory.PeerMemory`. In place of a part of a shared segment, a tensor's payload is the buffer itself.
"""

import sys
from typing import Any, Final

import numpy as np

from halimede.core.datatypes import BY_NUMBER
from halimede.core.tensors import Array, Tensor
from halimede.workers.memory import Encoded, PeerMemory, ServerOutgoing
from halimede_worker import responses
from halimede_worker.messages.memory import Memory, Outgoing, Segment, segment_of
from halimede_worker.tensors import tensors


class ModelMemory(Memory):
    """What a model's side needs of memory: nothing is shared with another process."""

    def __init__(self) -> None:
        self.regions = {}

    def piece(self, reference: Any) -> "Array | bytes":  # type: ignore[override] # the buffer itself
        """The bytes of a tensor, to be copied by who writes to them unless they are an array's."""
        return reference if isinstance(reference, np.ndarray) else bytes(reference)

    def outgoing(self) -> "ModelOutgoing":
        """What collects the tensors of a message."""
        return ModelOutgoing(self)

    def give_back(self, numbers: list[int]) -> None:
        """There is nothing to give back."""

    def held(self, numbers: Any) -> list[int]:
        """No segments."""
        return []

    @property
    def lent_bytes(self) -> int:
        """None."""
        return 0


class ModelOutgoing(Outgoing):
    """The tensors that a model sends. Its arrays are handed on if nothing else refers to them, else copied.

    Attributes:
        waits: the model waits until the tensors have been used, so that they are never copied.
    """

    __slots__ = ("waits",)

    def __init__(self, memory: Memory, *, waits: bool = False) -> None:
        super().__init__(memory)
        self.waits = waits

    def put(self, data: Array, owner: object = None) -> Any:
        """The payload of a tensor."""
        if data.nbytes <= self.INLINE_BYTES:
            return data.tobytes()
        if self.waits or segment_of(data) is not None:
            return data
        if owner is None:  # bytes, or what was received and not looked at
            return data if _is_constant(data) else data.copy()
        if sys.getrefcount(owner) > _OWNERS:
            return data.copy()
        base: object = data.base
        if base is None:
            return data if sys.getrefcount(data) <= _ARRAYS else data.copy()
        is_only_view = type(base) is np.ndarray and base.base is None and sys.getrefcount(base) <= _BASES
        return data if is_only_view else data.copy()


_BASES: Final = 3
"""References to an array of which there is but a view: the view's, a variable's, and the argument of `getrefcount`."""


class _Probe(Outgoing):
    """Counts the references to a tensor and its array, where nobody but a response has the tensor."""

    __slots__ = ("arrays", "owners")

    def __init__(self) -> None:
        self.arrays = self.owners = 0

    def put(self, data: Array, owner: object = None) -> Any:
        """Count."""
        self.owners, self.arrays = sys.getrefcount(owner), sys.getrefcount(data)
        return b""


def _count_references() -> tuple[int, int]:
    probe = _Probe()
    response = responses.InferenceResponse([tensors.Tensor("x", np.zeros(1, np.uint8))])
    responses.encode_response(response, None, probe)
    return probe.owners, probe.arrays


_OWNERS, _ARRAYS = _count_references()
"""References to a tensor that only its response has, and to an array that only its tensor has."""


def _is_constant(data: Array) -> bool:
    """Whether it views `bytes`."""
    base: object = data.base
    return isinstance(base, bytes) or (isinstance(base, memoryview) and type(base.obj) is bytes)


class ServerMemory(PeerMemory):
    """What the server's side needs of memory."""

    def tensor(self, encoded: Encoded) -> Tensor:
        """The tensor, as a view."""
        _, number, shape, payload, _ = encoded
        if type(payload) is not bytes:
            payload = payload.reshape(-1).view(np.uint8).data
        return Tensor(BY_NUMBER[number], shape, payload)

    def outgoing(self) -> "ServerToModel":
        """What collects the tensors of a message."""
        return ServerToModel(self)


class ServerToModel(ServerOutgoing):
    """The tensors that the server sends to a model."""

    __slots__ = ()

    def tensor(self, name: str, tensor: Tensor) -> Encoded:
        """The tensor for the message. What the model may not write to counts as shared."""
        data = tensor.data
        if len(data) <= self.INLINE_BYTES:
            return name, tensor.datatype.number, tensor.shape, bytes(data), True
        array = np.frombuffer(data, np.uint8)
        shared = tensor.shared or not _is_received(array)
        return name, tensor.datatype.number, tensor.shape, array, shared


def _is_received(array: Array) -> bool:
    """Whether it is a part of the memory that a body was received into, which nobody else reads."""
    return type(segment_of(array)) is Segment and array.flags.writeable
