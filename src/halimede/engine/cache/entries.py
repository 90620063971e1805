"""A response as the cache keeps it, apart from the request that it was made for."""

import sys
from typing import Final

from halimede.core.datatypes import Datatype
from halimede.core.requests import InferResponse, ParameterValue, RepeatingResponse
from halimede.core.tensors import Buffer, Tensor

_PLACE: Final = 3 * 96 + 33 + 32
"""Bytes that an entry takes beside its own objects: its places in the dictionaries and in the set of its version's
keys, as they are on average when those grow, and its key."""


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
    ) -> None:
        self.tensors = tensors
        self.parameters = parameters
        self.keys = keys
        self._plain = len(tensors) == 1 or len({each[0] for each in tensors}) == len(tensors)
        self.size = _PLACE + sys.getsizeof(self) + sys.getsizeof(tensors)
        for each in tensors:
            _, _, shape, data = each
            self.size += sys.getsizeof(each) + sys.getsizeof(shape) + 33 + len(data)
        if parameters:
            self.size += sys.getsizeof(parameters)
            self.size += sum(sys.getsizeof(name) + sys.getsizeof(value) for name, value in parameters.items())

    @classmethod
    def of(cls, response: InferResponse, keys: set[bytes]) -> "Entry":
        """The response, whose bytes are not copied: what they are part of stays as long as the entry."""
        tensors = tuple(
            (name, tensor.datatype, tensor.shape, tensor.data) for name, tensor in response.tensors()
        )
        return cls(tensors, response.parameters, keys)

    def detach(self) -> None:
        """Have bytes of its own from now on."""
        self.tensors = tuple(
            (name, datatype, shape, bytes(data)) for name, datatype, shape, data in self.tensors
        )
        self.parameters = dict(self.parameters) if self.parameters else None

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
