"""Tensors that an instance keeps for sequences: outputs of one request that are inputs of the next (implicit state).

What a batch has computed is kept whole, and its rows are views: the next batch of the same sequences in the same order
takes it as it is, any other copies rows together. Once at most half of the rows of a batch are still needed, they
are copied out, so that no more than twice the memory is held that the states need.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from halimede.config.signature import Signature, StateSpec
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, OutOfMemoryError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array

_STRING_BYTES = 4
"""An empty string is its length alone."""


class _Block:
    """What one batch computed of one state.

    Attributes:
        array: a row for each request of the batch; without batching, the state itself.
        index: sequence → its row, for those that still need it.
        size: bytes.
        rows: how many rows there are.
    """

    __slots__ = ("array", "index", "rows", "size")

    def __init__(self, array: Array, rows: int) -> None:
        self.array = array
        self.rows = rows
        self.index: dict[int, int] = {}
        self.size = _byte_size(array)


class _State:
    """One state of all sequences of an instance.

    Attributes:
        spec: what it is.
        initial: what a sequence begins with, of shape ``dims``.
        held: bytes of all blocks.
    """

    def __init__(self, spec: StateSpec, initial: Array, *, batched: bool) -> None:
        self.spec = spec
        self.initial = initial[np.newaxis] if batched else initial
        self.held = 0
        self._zero = _zeros(self.initial.shape, initial.dtype)
        self._batched = batched
        self._fixed = -1 not in spec.input.dims
        self._blocks: dict[int, _Block] = {}

    @property
    def is_fixed(self) -> bool:
        """Whether it has the same shape for all sequences."""
        return self._fixed

    def has(self, key: int) -> bool:
        """Whether something was kept of it for the sequence."""
        return key in self._blocks

    def shape(self, request: InferRequest) -> tuple[int, ...]:
        """The shape that the state has for the request, batch dimension left out."""
        block = None if request.sequence_start else self._blocks.get(request.sequence_key)
        shape = self.initial.shape if block is None else block.array.shape
        return shape[1:] if self._batched else shape

    def parts(self, requests: Sequence[InferRequest]) -> list[Array]:
        """The arrays which together are the state of the requests, row after row."""
        blocks, initial = self._blocks, self.initial
        if not self._batched:
            request = requests[0]
            block = None if request.sequence_start else blocks.get(request.sequence_key)
            return [initial if block is None else block.array]
        parts: list[Array] = []
        run: _Block | None = None  # rows of a block that follow one another are one part
        begin = end = 0
        for request in requests:
            key = request.sequence_key
            block = None if request.sequence_start else blocks.get(key)
            if block is not None and block is run and block.index[key] == end:
                end += 1
                continue
            if run is not None:
                parts.append(run.array[begin:end])
            run = block
            if block is not None:
                begin = block.index[key]
                end = begin + 1
            else:
                parts.append(initial if key else self._dummy(requests))
        if run is not None:
            parts.append(run.array[begin:end])
        return parts

    def _dummy(self, requests: Sequence[InferRequest]) -> Array:
        """What a request without a sequence takes: zeros, shaped as what the others of its batch take."""
        if self._fixed:
            return self._zero
        first = next((request for request in requests if request.sequence_key), requests[0])
        return _zeros((1, *self.shape(first)), self.initial.dtype)

    def growth(self, requests: Sequence[InferRequest], array: Array) -> list[int]:
        """Bytes that each request's sequence would hold beyond what it holds now."""
        row = _byte_size(array) // max(1, len(requests))
        keys = [request.sequence_key for request in requests]
        return [row - self._row_bytes(key) if key else 0 for key in keys]

    def keep(self, requests: Sequence[InferRequest], array: Array, refused: Sequence[int]) -> None:
        """Take what a batch computed, but for the requests with the numbers `refused`."""
        left: dict[int, _Block] = {}
        block = _Block(array, len(requests))
        for number, request in enumerate(requests):
            key = request.sequence_key
            if not key or number in refused:
                continue
            former = self._blocks.get(key)
            if former is not None:
                del former.index[key]
                left[id(former)] = former
            self._blocks[key] = block
            block.index[key] = number
        if block.index:
            self.held += block.size
            left[id(block)] = block
        for former in left.values():
            self._tidy(former)

    def drop(self, key: int) -> None:
        """Forget the sequence."""
        block = self._blocks.pop(key, None)
        if block is not None:
            del block.index[key]
            self._tidy(block)

    def _row_bytes(self, key: int) -> int:
        block = self._blocks.get(key)
        return 0 if block is None else block.size // block.rows

    def _tidy(self, block: _Block) -> None:
        """Let go of a batch of which half the rows, or more, are needed no longer."""
        if not block.index:
            self.held -= block.size
        elif 2 * len(block.index) <= block.rows:
            keys = sorted(block.index, key=block.index.__getitem__)
            try:
                rows = block.array[[block.index[key] for key in keys]]
            except MemoryError:
                return
            smaller = _Block(rows, len(keys))
            for row, key in enumerate(keys):
                smaller.index[key] = row
                self._blocks[key] = smaller
            self.held += smaller.size - block.size


class SequenceStates:
    """The states of one instance. Batches use it on their thread, sequences end on the event loop.

    Attributes:
        admit: whether so many bytes more may be held; None for any number.
    """

    def __init__(self, signature: Signature, initial: Mapping[str, Array]) -> None:
        """Nothing is kept yet.

        Args:
            signature: of the model.
            initial: input of a state → what a sequence begins with, without batch dimension.
        """
        self.admit: Callable[[int], bool] | None = None
        batched = signature.max_batch_size > 0
        self._batched = batched
        self._states = {
            name: _State(spec, initial[name], batched=batched) for name, spec in signature.states.items()
        }
        self._outputs = {state.spec.output.name: state for state in self._states.values()}
        self._hidden = [name for name in self._outputs if name not in signature.outputs]
        self._variable = [state for state in self._states.values() if not state.is_fixed]
        self._lost: set[int] = set()
        self._lock = Lock()

    @property
    def byte_size(self) -> int:
        """Bytes that are held for all sequences."""
        return sum(state.held for state in self._states.values())

    @property
    def outputs(self) -> Iterable[str]:
        """Names of the outputs that are states."""
        return self._outputs

    def split(self, requests: Sequence[InferRequest]) -> tuple[list[list[int]], dict[int, HalimedeError]]:
        """Which of the requests can run together, as their states have the same shapes, and which cannot run at all.

        Returns:
            Groups of numbers of requests, in order, and the errors by number. Requests without a sequence go with the
            first group.
        """
        refused: dict[int, HalimedeError] = {}
        if self._lost:
            for number, request in enumerate(requests):
                if request.sequence_key in self._lost and not request.sequence_start:
                    refused[number] = _lost(request)
        if not self._variable or len(requests) == 1:
            rest = [number for number in range(len(requests)) if number not in refused]
            return ([rest] if rest else []), refused
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        nulls: list[int] = []
        with self._lock:
            for number, request in enumerate(requests):
                if not request.sequence_key:
                    nulls.append(number)
                elif number not in refused:
                    shapes = tuple([state.shape(request) for state in self._variable])
                    groups.setdefault(shapes, []).append(number)
        found = list(groups.values())
        if nulls:
            found[:1] = [sorted([*(found[0] if found else ()), *nulls])]
        return found, refused

    def gather(self, requests: Sequence[InferRequest]) -> dict[str, Array]:
        """Input of a state → the states of the requests, of shape ``[len(requests), *dims]``; read-only in spirit.

        Raises:
            OutOfMemoryError: there is no memory for a copy.
        """
        with self._lock:
            for request in requests:
                if request.sequence_start:  # what comes after a failed start begins anew as well
                    self._forget(request.sequence_key)
            parts = {name: state.parts(requests) for name, state in self._states.items()}
        try:
            return {
                name: pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
                for name, pieces in parts.items()
            }
        except MemoryError as error:
            text = f"there is no memory to gather the states of {len(requests)} sequences"
            raise OutOfMemoryError(text) from error

    def take(self, outputs: dict[str, Array], size: int) -> dict[str, Array]:
        """Take the states out of what a batch computed: output → array. Outputs that clients see stay there too.

        Raises:
            InternalError: a state has another shape or datatype than the configuration says.
        """
        taken = {name: np.ascontiguousarray(outputs[name]) for name in self._outputs if name in outputs}
        for name, array in taken.items():
            self._check(self._outputs[name].spec, array, size)
        for name in self._hidden:
            outputs.pop(name, None)
        return taken

    def keep(self, requests: Sequence[InferRequest], taken: Mapping[str, Array]) -> dict[int, HalimedeError]:
        """Keep what was taken of a batch that has run.

        Returns:
            Number of a request → why its state could not be kept; what was kept for its sequence before stays, or,
            if it has just begun, it is lost.
        """
        with self._lock:
            refused = {} if self.admit is None else self._refused(requests, taken, self.admit)
            for name, array in taken.items():
                self._outputs[name].keep(requests, array, [*refused])
            for number in refused:
                key = requests[number].sequence_key
                if not any(state.has(key) for state in self._states.values()):
                    self._lost.add(key)
        return refused

    def end(self, key: int) -> None:
        """Forget a sequence."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: int) -> None:
        self._lost.discard(key)
        for state in self._states.values():
            state.drop(key)

    def _refused(
        self, requests: Sequence[InferRequest], taken: Mapping[str, Array], admit: Callable[[int], bool]
    ) -> dict[int, HalimedeError]:
        """The requests for whose states there is no room, each with its error."""
        growths = [self._outputs[name].growth(requests, array) for name, array in taken.items()]
        more = [sum(each) for each in zip(*growths, strict=True)]
        if sum(more) <= 0 or admit(sum(more)):
            return {}
        refused: dict[int, HalimedeError] = {}
        room = 0
        for number, growth in enumerate(more):
            if growth <= 0 or admit(room + growth):
                room += growth
            else:
                text = (
                    f"the state of sequence {_name(requests[number])} takes {growth} bytes more, which are beyond "
                    f"the memory that models may take"
                )
                refused[number] = OutOfMemoryError(text)
        return refused

    def _check(self, spec: StateSpec, array: Array, size: int) -> None:
        dims, datatype = spec.output.dims, spec.output.datatype
        expected = (size, *dims) if self._batched else dims
        shape = array.shape
        fits = len(shape) == len(expected) and all(
            dim in (-1, have) for dim, have in zip(expected, shape, strict=True)
        )
        if not fits:
            msg = (
                f"state output '{spec.output.name}' of the model has shape {list(shape)}, but the configuration says "
                f"{[*expected]}"
            )
            raise InternalError(msg)
        if array.dtype != datatype.numpy:
            msg = (
                f"state output '{spec.output.name}' of the model is of {array.dtype}, but the configuration says "
                f"{datatype.config_name}"
            )
            raise InternalError(msg)


def _lost(request: InferRequest) -> HalimedeError:
    return InvalidArgumentError(
        f"the state of sequence {_name(request)} of model '{request.model_name}' is lost, as there was no memory for "
        f"it; begin it again by a request with the START flag"
    )


def _name(request: InferRequest) -> str:
    return repr(request.sequence_id) if isinstance(request.sequence_id, str) else str(request.sequence_id)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros, or empty strings."""
    array = np.zeros(shape, dtype)
    if dtype == np.object_:
        array.fill(b"")
    return array


def _byte_size(array: Array) -> int:
    if array.dtype != np.object_:
        return array.nbytes
    return sum(map(len, array.reshape(-1).tolist())) + array.size * _STRING_BYTES
