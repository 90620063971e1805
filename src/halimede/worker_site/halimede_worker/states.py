"""Implicit state of Python models: outputs of one request of a sequence that are inputs of the next."""

import threading
from math import prod
from typing import Any, Dict, Sequence, Tuple

import numpy as np

from .errors import TritonModelException
from .responses import InferenceResponse
from .tensors.datatypes import BYTES
from .tensors.tensors import EncodedTensor, encode_tensor

EncodedState = Tuple[str, str, int, Tuple[int, ...], Tuple[int, ...], bytes]
"""A state in a message: names of the input and the output, number of the datatype, the shape that the output has, -1
where that varies, and shape and bytes of what sequences begin with."""


class States:
    """The states of one instance. Any thread may use it, as senders do."""

    def __init__(self, specs: Sequence[EncodedState]) -> None:
        self._initial = tuple(
            [(name, number, shape, content, True) for name, _, number, _, shape, content in specs]
        )
        self._zeros = tuple(
            [
                (name, number, shape, _zeros(number, shape, content), True)
                for name, _, number, _, shape, content in specs
            ]
        )
        self._inputs = {output: (name, number, wanted) for name, output, number, wanted, _, _ in specs}
        self._kept: Dict[int, Dict[str, EncodedTensor]] = {}
        self._lock = threading.Lock()

    def inputs(self, key: int, start: bool) -> Tuple[EncodedTensor, ...]:
        """The states of a sequence, as inputs of its next request.

        Args:
            key: the sequence, 0 for none.
            start: the request is the first of it: what was kept is forgotten.
        """
        if not key:
            return self._zeros
        if start:
            self.end(key)
        kept = self._kept.get(key)
        if kept is None:
            return self._initial
        return tuple([kept.get(initial[0], initial) for initial in self._initial])

    def take(self, response: InferenceResponse) -> Dict[str, EncodedTensor]:
        """The states that a response has: input → tensor, copied, as the model may write to its own.

        Raises:
            TritonModelException: one is not what the configuration says.
        """
        taken: Dict[str, EncodedTensor] = {}
        if response._error is not None:
            return taken
        for output in response._outputs:
            found = self._inputs.get(output._name)
            if found is None:
                continue
            name, number, wanted = found
            shape = tuple(output._shape)
            if output._datatype != number or not _fits(shape, wanted):
                raise TritonModelException(
                    f"state output '{output._name}' has datatype number {output._datatype} and shape {list(shape)}, "
                    f"but the configuration says {number} and {list(wanted)}"
                )
            _, _, _, content, _ = encode_tensor(output, _COPIES)
            taken[name] = (name, number, shape, content, True)
        return taken

    def keep(self, key: int, taken: Dict[str, EncodedTensor]) -> None:
        """Keep what was taken for the sequence; what it has no new value of stays."""
        if taken and key:
            with self._lock:
                self._kept.setdefault(key, {}).update(taken)

    def end(self, key: int) -> None:
        """Forget the sequence."""
        with self._lock:
            self._kept.pop(key, None)


class _Copies:
    """Takes tensors as bytes of their own."""

    def put(self, array: np.ndarray, owner: object = None) -> bytes:
        """Its bytes."""
        return array.tobytes()


_COPIES: Any = _Copies()


def _zeros(number: int, shape: Tuple[int, ...], content: bytes) -> bytes:
    """Zeros like a tensor of that content, or empty strings, of which only the lengths are there."""
    return bytes(4 * prod(shape) if number == BYTES else len(content))


def _fits(shape: Tuple[int, ...], wanted: Tuple[int, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(size in (-1, have) for size, have in zip(wanted, shape))
