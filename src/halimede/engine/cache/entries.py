"""A response as the cache keeps it, apart from the request that it was made for."""

from typing import Final

from halimede.core.datatypes import Datatype
from halimede.core.requests import InferResponse, ParameterValue, RepeatingResponse
from halimede.core.tensors import Buffer, Tensor

_ENTRY: Final = 340
"""Bytes that an entry takes beside its tensors: itself, its key, and its places in the dictionary and in the set of
its version's keys, as they are on average when those grow."""

_TENSOR: Final = 96 + 48 + 40
"""Bytes that a tensor takes beside its elements and its dimensions: the tuples of its parts and of its shape, and the
head of its bytes."""

_PARAMETER: Final = 160
"""Bytes that a parameter takes beside the characters of its name and its value."""


class Entry:
    """A successful response.

    Attributes:
        tensors: name, datatype, shape and bytes of each output, in order; names may repeat.
        parameters: response parameters, or None.
        size: bytes that it takes when it is kept, all that it is made of included.
        keys: the keys under which the entries of its version are kept.
    """

    __slots__ = ("_plain", "keys", "parameters", "size", "tensors")

    def __init__(
        self,
        tensors: tuple[tuple[str, Datatype, tuple[int, ...], Buffer], ...],
        parameters: dict[str, ParameterValue] | None,
        keys: set[bytes],
        size: int,
    ) -> None:
        self.tensors = tensors
        self.parameters = parameters
        self.keys = keys
        self.size = size
        self._plain = len(tensors) == 1 or len({each[0] for each in tensors}) == len(tensors)

    @classmethod
    def of(cls, response: InferResponse, keys: set[bytes], largest: int) -> "Entry":
        """A response as an entry, with bytes of its own unless it is larger than the largest entry."""
        size = _ENTRY
        views = []
        for name, tensor in response.tensors():
            data, shape = tensor.data, tensor.shape
            size += _TENSOR + 8 * len(shape) + len(data)
            views.append((name, tensor.datatype, shape, data))
        parameters = response.parameters
        if parameters:
            for key, value in parameters.items():
                size += _PARAMETER + len(key) + (len(value) if isinstance(value, str) else 0)
            parameters = dict(parameters)
        if size > largest:
            return cls(tuple(views), parameters, keys, size)
        kept = tuple([(name, datatype, shape, bytes(data)) for name, datatype, shape, data in views])
        return cls(kept, parameters, keys, size)

    def response(self) -> InferResponse:
        """A response to another request. Its tensors are views of the entry, which nobody may write to."""
        parameters = dict(self.parameters) if self.parameters else None
        if not self._plain:
            return RepeatingResponse(self._views(), parameters)
        return InferResponse(dict(self._views()), parameters)

    def _views(self) -> list[tuple[str, Tensor]]:
        views = []
        for name, datatype, shape, data in self.tensors:
            tensor = Tensor(datatype, shape, data)
            tensor.shared = True
            views.append((name, tensor))
        return views
