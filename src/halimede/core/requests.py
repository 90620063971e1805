"""Requests and responses: what every protocol is turned into, and every scheduler and backend works on."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from halimede.core.errors import HalimedeError
from halimede.core.regions import Piece
from halimede.core.tensors import Tensor
from halimede.core.traces import Trace

ParameterValue = bool | int | float | str

NamedTensors = Collection[tuple[str, Tensor]]
"""Tensors with their names, in order; names may repeat."""


class InferResponse:
    """One response to a request: outputs, or an error.

    Attributes:
        outputs: name → tensor, in the order in which the model lists them; empty with an error.
        repeated: further tensors, under names that `outputs` has already; only Python models give such.
        parameters: response parameters that the backend set, or None.
        error: what went wrong, or None.
    """

    __slots__ = ("error", "outputs", "parameters")

    repeated: tuple[tuple[str, Tensor], ...] = ()

    def __init__(
        self,
        outputs: dict[str, Tensor] | None = None,
        parameters: dict[str, ParameterValue] | None = None,
        error: HalimedeError | None = None,
    ) -> None:
        self.outputs = outputs if outputs is not None else {}
        self.parameters = parameters
        self.error = error

    def tensors(self) -> NamedTensors:
        """All tensors with their names, repeated ones last."""
        return self.outputs.items()


class RepeatingResponse(InferResponse):
    """A response with several tensors of one name."""

    __slots__ = ("repeated",)

    def __init__(
        self,
        tensors: Sequence[tuple[str, Tensor]],
        parameters: dict[str, ParameterValue] | None = None,
    ) -> None:
        outputs: dict[str, Tensor] = {}
        repeated = []
        for name, tensor in tensors:
            if outputs.setdefault(name, tensor) is not tensor:
                repeated.append((name, tensor))
        super().__init__(outputs, parameters)
        self.repeated = tuple(repeated)

    def tensors(self) -> NamedTensors:
        """All tensors with their names, repeated ones last."""
        return (*self.outputs.items(), *self.repeated)


Respond = Callable[[InferResponse | None, bool], None]
"""``respond(response, final)``, called on the event loop. ``(None, True)`` ends a decoupled request whose last
response is already sent. After ``final`` nothing more comes."""


class InferRequest:
    """One inference request on its way through the engine.

    Attributes:
        model_name: the model.
        model_version: the version, or -1 for the highest that is ready.
        id: the client's identifier, "" if it gave none.
        inputs: name → tensor.
        outputs: names of the outputs wanted; empty for all.
        parameters: custom parameters, or None.
        priority: 0 for the model's default, 1 the highest.
        timeout_us: longest time in the queue, in microseconds; 0 for the model's default.
        sequence_id: correlation id, 0 or "" for none.
        sequence_start: the first request of its sequence.
        sequence_end: the last request of its sequence.
        sequence_key: under which an instance keeps what belongs to the sequence: a number, different for each sequence
            of a model, also if ids repeat; set by the sequence batcher, 0 for none.
        is_null: it stands for a sequence without a request; nobody waits for its response.
        nested: another request led to it: it is a step of an ensemble, or a call of a model.
        respond: where responses go.
        batch_size: rows along the batch dimension, 1 for a model without; set by validation.
        byte_size: bytes of all inputs together; set by validation.
        on_device: outputs that may stay in the memory of the device that computes them, as `DeviceTensor`.
        cancelled: the client gave up.
        on_cancel: set by whoever can act on a cancellation while it holds the request.
        congested: who takes the responses has more of them than it can pass on; set by `congest` and `drain`.
        on_drain: set by whoever holds responses back while the request is congested.
        on_compute: if set, told once what its execution took to gather inputs, to compute and to hand out outputs, in
            nanoseconds: before the final response, but for a decoupled model perhaps after it.
        received_ns: when the request was complete, on the engine's clock.
        queued_ns: when it entered its scheduler.
        started_ns: when its execution began; set before `on_compute` is told, 0 until then and for ensembles.
        trace: what is recorded of it; None for most requests, which are not traced.
        targets: name → part of a client's region, of outputs that whoever computes them may write there himself; None
            for a request without inputs and outputs in regions.
    """

    __slots__ = (
        "batch_size",
        "byte_size",
        "cancelled",
        "congested",
        "id",
        "inputs",
        "model_name",
        "model_version",
        "on_cancel",
        "on_compute",
        "on_device",
        "on_drain",
        "outputs",
        "parameters",
        "priority",
        "queued_ns",
        "received_ns",
        "respond",
        "sequence_end",
        "sequence_id",
        "sequence_key",
        "sequence_start",
        "started_ns",
        "targets",
        "timeout_us",
        "trace",
    )

    is_null: ClassVar[bool] = False
    nested: ClassVar[bool] = False

    def __init__(
        self,
        model_name: str,
        inputs: dict[str, Tensor],
        respond: Respond,
        *,
        model_version: int = -1,
        id: str = "",  # noqa: A002 - the protocol's name
        outputs: tuple[str, ...] = (),
        parameters: dict[str, ParameterValue] | None = None,
        priority: int = 0,
        timeout_us: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        received_ns: int = 0,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = id
        self.inputs = inputs
        self.outputs = outputs
        self.parameters = parameters
        self.priority = priority
        self.timeout_us = timeout_us
        self.sequence_id = sequence_id
        self.sequence_start = sequence_start
        self.sequence_end = sequence_end
        self.sequence_key = 0
        self.respond = respond
        self.batch_size = 1
        self.byte_size = 0
        self.on_device: tuple[str, ...] = ()
        self.cancelled = False
        self.on_cancel: Callable[[InferRequest], None] | None = None
        self.congested = False
        self.on_drain: Callable[[InferRequest], None] | None = None
        self.on_compute: Callable[[int, int, int], None] | None = None
        self.received_ns = received_ns
        self.queued_ns = received_ns
        self.started_ns = 0
        self.trace: Trace | None = None
        self.targets: Mapping[str, Piece] | None = None

    def cancel(self) -> None:
        """The client gave up: a queued request leaves its queue; a running one may be told."""
        if not self.cancelled:
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel(self)

    def congest(self) -> None:
        """Whoever takes the responses has enough of them for now: a decoupled model should wait."""
        self.congested = True

    def drain(self) -> None:
        """It has passed them on, and takes more."""
        if self.congested:
            self.congested = False
            if self.on_drain is not None:
                self.on_drain(self)

    @property
    def prefix(self) -> str:
        """How errors about this request begin."""
        return request_prefix(self.id)


class NullRequest(InferRequest):
    """Takes the place of a sequence that has no request, in a batch in which each sequence has a place of its own."""

    __slots__ = ()

    is_null: ClassVar[bool] = True


class NestedRequest(InferRequest):
    """A request that another one led to: a step of an ensemble, or a call of a model."""

    __slots__ = ()

    nested: ClassVar[bool] = True


def request_prefix(identifier: str) -> str:
    """How errors about a request begin; its identifier is "" if the client gave none."""
    return f"[request id: {identifier or '<id_unknown>'}] "


def already_there(kind: str, name: str) -> str:
    """The error text for a second input or output of one name in a request."""
    return f"{kind} '{name}' already exists in request"
