"""A batch: the requests that one execution serves, gathered into tensors and scattered back.

Gathering copies each request's bytes once, with no padding; a batch of one request is not copied at all. Only
if a model batches by tokens, shorter requests are filled up to the longest, and their outputs cut to their length.
Scattering cuts views.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from math import prod
from time import monotonic_ns

import numpy as np

from halimede.backends.ragged import batch_input_values, cut_like_inputs
from halimede.backends.states import SequenceStates
from halimede.config.signature import Signature, TensorSpec, client_shape
from halimede.core.datatypes import BYTES
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array, Tensor

Send = Callable[[InferRequest, InferResponse | None, bool], None]


DEFERRED = InferResponse()
"""Stands for a response that does not come with the others of its batch."""


class Closing(Enum):
    """Why a dynamic batcher let no more requests into a batch."""

    FULL = "full"
    PREFERRED_SIZE = "preferred size"
    DELAY_OVER = "delay over"
    INSTANCE_FREE = "instance free"
    OTHER_SHAPES = "other shapes"
    MAX_TOKENS = "max tokens"

    __hash__ = object.__hash__  # Enum's own is written in Python, and each batch is counted by its reason


class Batch:
    """Requests that run as one.

    Attributes:
        signature: of the model.
        requests: at least one.
        size: rows along the batch dimension, all requests together; 1 for a model without.
        nulls: how many of these are null requests'.
        byte_size: bytes of all inputs of all requests.
        responses: one a request, in order, once it has run; `DEFERRED` for one that the model sent, or will send,
            by itself; empty for a decoupled model.
        closing: (dynamic batchers) why it has no more requests.
        tokens: (batchers by tokens) tokens of all requests.
        padding: (batchers by tokens) tokens that shorter requests are filled up with.
        instance: the name of the instance that runs it, "" before.
        states: (models with implicit state) what the instance keeps for sequences; set before the batch runs.
        taken: output → states that this batch computed; kept once it has run.
        rescheduled: requests that the model wants to get again, in a later batch; their responses are `DEFERRED`.
        send: (decoupled models) sends one response of one request, from any thread; None and True end it.
        together: (decoupled models) what a thread sends in a block of this goes at its end, at less cost. Nothing may
            be waited for in the block.
        started_ns: when the execution began.
        inputs_ns: when the inputs were gathered; set by `gather`.
        outputs_ns: when the model had computed; set by `scatter`.
        ended_ns: when the execution was over.
        failed: the whole batch failed; each response says why.
    """

    __slots__ = (
        "byte_size",
        "closing",
        "ended_ns",
        "failed",
        "inputs_ns",
        "instance",
        "nulls",
        "outputs_ns",
        "padding",
        "requests",
        "rescheduled",
        "responses",
        "send",
        "signature",
        "size",
        "started_ns",
        "states",
        "taken",
        "together",
        "tokens",
    )

    def __init__(
        self, signature: Signature, requests: list[InferRequest], size: int, byte_size: int = 0
    ) -> None:
        self.signature = signature
        self.requests = requests
        self.size = size
        self.nulls = 0
        self.byte_size = byte_size
        self.closing: Closing | None = None
        self.tokens = 0
        self.padding = 0
        self.instance = ""
        self.responses: Sequence[InferResponse] = ()
        self.rescheduled: Sequence[InferRequest] = ()
        self.states: SequenceStates | None = None
        self.taken: dict[str, Array] = {}
        self.send: Send | None = None
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        self.started_ns = 0
        self.inputs_ns = 0
        self.outputs_ns = 0
        self.ended_ns = 0
        self.failed = False

    def gather(self, left_out: Collection[str] = ()) -> dict[str, Array]:
        """Every input, `batch_input` and state of the batch: name → array, perhaps read-only.

        Batched inputs have shape ``[size, *dims]``; ragged ones are flat, one request after the other.

        Args:
            left_out: inputs that the backend takes from a device by itself.
        """
        requests = self.requests
        inputs: dict[str, Array]
        if len(requests) == 1:
            tensors = requests[0].inputs
            if left_out:
                tensors = {name: tensor for name, tensor in tensors.items() if name not in left_out}
            inputs = {name: tensor.array for name, tensor in tensors.items()}
            for name in self.signature.ragged:
                if name in inputs:
                    inputs[name] = inputs[name].reshape(-1)
        else:
            specs = self.signature.backend_inputs
            fill = self.signature.filled
            inputs = {
                name: _concatenate(
                    specs[name], [request.inputs[name] for request in requests], self.size, fill.get(name)
                )
                for name in requests[0].inputs
                if name not in left_out
            }
        for batch_input in self.signature.batch_inputs:
            values = batch_input_values(batch_input, self._source_shapes(batch_input.source_input[0]))
            for target in batch_input.target_name:
                inputs[target] = values
        if self.states is not None:
            inputs.update(self.states.gather(requests))
        self.inputs_ns = monotonic_ns()
        return inputs

    def gathered(self) -> None:
        """Note that the inputs are with the model; `gather` does so itself."""
        self.inputs_ns = monotonic_ns()

    def computed(self) -> None:
        """Note that the model has computed; `scatter` does so itself."""
        self.outputs_ns = monotonic_ns()

    def wanted(self) -> list[str]:
        """Names of the outputs that any request wants, in the order of the configuration, and all states."""
        signature = self.signature
        names: set[str] = set() if self.states is None else {*self.states.outputs}
        for request in self.requests:
            if not request.outputs:
                return list(signature.backend_outputs if self.states is not None else signature.outputs)
            names.update(request.outputs)
        return [name for name in signature.backend_outputs if name in names]

    def scatter(self, outputs: dict[str, Array]) -> None:
        """Cut the model's outputs into responses, each with the outputs that its request wants.

        Args:
            outputs: name → array of shape ``[size, *dims]``, or ``dims`` for a model without batching;
                in the order in which responses list them. States that clients do not see are taken out of it.

        Raises:
            InternalError: an output has not as many rows as the batch, or does not fit its `reshape`, or a state is not
                as configured.
        """
        self.outputs_ns = monotonic_ns()
        if self.states is not None:
            self.taken = self.states.take(outputs, self.size)
        signature, requests = self.signature, self.requests
        if len(requests) == 1:
            wanted, specs = requests[0].outputs, signature.outputs
            self.responses = [
                InferResponse(
                    {
                        name: self._whole(specs[name], array)
                        for name, array in outputs.items()
                        if not wanted or name in wanted
                    }
                )
            ]
            return
        responses: list[dict[str, Tensor]] = [{} for _ in requests]
        for name, array in outputs.items():
            spec = signature.outputs[name]
            if name in signature.scattered:
                pieces = self._cut_like_input(spec, array)
            elif signature.filled and spec.dims[:1] == (-1,) and (lengths := self._lengths(array)):
                pieces = self._cut_lengths(spec, array, lengths)
            else:
                pieces = self._cut_rows(spec, array)
            for request, response, tensor in zip(requests, responses, pieces, strict=True):
                if not request.outputs or name in request.outputs:
                    response[name] = tensor
        self.responses = [InferResponse(tensors) for tensors in responses]

    def _whole(self, spec: TensorSpec, array: Array) -> Tensor:
        """The output of the only request."""
        if spec.name in self.signature.scattered:
            return self._cut_like_input(spec, array)[0]
        batched = self.signature.max_batch_size > 0
        if batched and (array.ndim == 0 or len(array) != self.size):
            raise self._wrong_rows(spec.name, array.shape)
        if spec.reshaped:
            array = _reshape(spec, array, batched=batched)
        return Tensor(spec.datatype, array.shape, None, array)

    def _cut_rows(self, spec: TensorSpec, array: Array) -> list[Tensor]:
        """An output of shape ``[size, …]``, as one tensor a request."""
        if array.shape[:1] != (self.size,):
            raise self._wrong_rows(spec.name, array.shape)
        array = _reshape(spec, array, batched=True)
        tail = array.shape[1:]
        tensors: list[Tensor] = []
        start = 0
        if spec.datatype is BYTES:
            for request in self.requests:
                end = start + request.batch_size
                tensors.append(Tensor.from_array(BYTES, array[start:end]))
                start = end
            return tensors
        row = prod(tail) * spec.datatype.itemsize
        data = Tensor.from_array(spec.datatype, array).data
        for request in self.requests:
            rows = request.batch_size
            end = start + rows * row
            tensors.append(Tensor(spec.datatype, (rows, *tail), data[start:end]))
            start = end
        return tensors

    def _wrong_rows(self, name: str, shape: tuple[int, ...]) -> HalimedeError:
        """The error of an output that has not as many rows as the batch.

        With ragged inputs, which requests may send only with one row each, a row for each request is right.
        """
        requests = len(self.requests)
        if self.signature.ragged and shape[:1] == (requests,):
            rows = max(request.batch_size for request in self.requests)
            return InvalidArgumentError(
                f"the request has {rows} rows, and output '{name}' of the model, whose inputs are ragged, has one row "
                f"for each request; send a request for each row"
            )
        return wrong_rows(name, shape, self.size)

    def _lengths(self, array: Array) -> list[int]:
        """How long each request was before it was filled up; none if the output is not as long as the longest."""
        tokens = self.signature.tokens
        assert tokens is not None
        lengths = [request.inputs[tokens.source].shape[1] for request in self.requests]
        differ = array.ndim > 1 and array.shape[1] == max(lengths) != min(lengths)
        return lengths if differ else []

    def _cut_lengths(self, spec: TensorSpec, array: Array, lengths: list[int]) -> list[Tensor]:
        """An output of shape ``[size, longest, …]``, as one tensor a request, without what belongs to its padding."""
        if array.shape[0] != self.size:
            raise self._wrong_rows(spec.name, array.shape)
        tensors: list[Tensor] = []
        start = 0
        for request, length in zip(self.requests, lengths, strict=True):
            end = start + request.batch_size
            tensors.append(Tensor.from_array(spec.datatype, np.ascontiguousarray(array[start:end, :length])))
            start = end
        return tensors

    def _cut_like_input(self, spec: TensorSpec, array: Array) -> list[Tensor]:
        """An output whose pieces have sizes of an input of their requests (`batch_output`)."""
        source = self.signature.scattered[spec.name]
        batched = self.signature.max_batch_size > 0
        return cut_like_inputs(spec, array, source, self._source_shapes(source), batched=batched)

    def _source_shapes(self, name: str) -> list[tuple[int, ...]]:
        """The shape of an input in each request, by which a tensor of the whole batch is made or cut.

        Raises:
            InvalidArgumentError: a request leaves it out, as it is optional.
        """
        try:
            return [request.inputs[name].shape for request in self.requests]
        except KeyError:
            msg = f"input '{name}' cannot be left out: batch_input or batch_output of the configuration refer to it"
            raise InvalidArgumentError(msg) from None


def fail(batch: Batch, error: HalimedeError) -> None:
    """Make `error` the response to every request of the batch."""
    batch.failed = True
    batch.responses = [InferResponse(error=error) for _ in batch.requests]


def _concatenate(spec: TensorSpec, tensors: list[Tensor], size: int, fill: int | None = None) -> Array:
    """The tensors of one input one after the other, along the batch dimension or, ragged, flat.

    With a value to `fill` up with, those that are shorter than the longest along the second dimension end with it.
    """
    if fill is not None and len({tensor.shape[1] for tensor in tensors}) > 1:
        return _filled(spec, tensors, size, fill)
    shape = (-1,) if spec.ragged else (size, *tensors[0].shape[1:])
    if spec.datatype is BYTES:
        return np.concatenate([tensor.array.reshape(-1) for tensor in tensors]).reshape(shape)
    joined = b"".join([tensor.data for tensor in tensors])
    return np.frombuffer(joined, spec.datatype.numpy).reshape(shape)


def _filled(spec: TensorSpec, tensors: list[Tensor], size: int, fill: int) -> Array:
    longest = max(tensor.shape[1] for tensor in tensors)
    array = np.full((size, longest, *tensors[0].shape[2:]), fill, spec.datatype.numpy)
    start = 0
    for tensor in tensors:
        end = start + tensor.shape[0]
        array[start:end, : tensor.shape[1]] = tensor.array
        start = end
    return array


def _reshape(spec: TensorSpec, array: Array, *, batched: bool) -> Array:
    """The backend's output as clients see it."""
    return array.reshape(client_shape(spec, array.shape, int(batched))) if spec.reshaped else array


def wrong_rows(name: str, shape: tuple[int, ...], size: int) -> InternalError:
    """The error of an output that has not as many rows as the batch."""
    return InternalError(
        f"output '{name}' has shape {list(shape)}, which does not fit a batch of {size}: "
        f"its first dimension should be {size}"
    )
