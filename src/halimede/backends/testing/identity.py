"""Backend `identity`: gives each request its inputs back, unread and uncopied. For tests and measurements."""

from math import prod
from time import monotonic_ns, sleep
from typing import NamedTuple

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.parameters import choice_parameter, integer_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature, TensorSpec, match_wildcards
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse, ParameterValue
from halimede.core.tensors import Tensor
from halimede.core.traces import Trace

RESPONSE_PARAMETERS: dict[str, ParameterValue] = {
    "param0": "an example string parameter",
    "param1": 42,
    "param2": False,
    "param3": 123.123,
}
LENGTH_BYTES = 4
"""An empty string is its length alone."""

_SINGLE = "CUSTOM_SINGLE_ACTIVITY"
_ACTIVITY_S = 0.1
"""How long an activity takes at least."""


class _Activities(NamedTuple):
    """What is recorded of a traced request besides the server's own events.

    Attributes:
        nested: so many activities within each other.
        frequency: of these, the first and each of so many later ones has a single event.
    """

    nested: int
    frequency: int


class IdentityModel(BackendModel):
    """Any number of inputs, each copied to the output of its number, or else of its position.

    An optional input that a request leaves out is taken for zeros or empty strings, of size 1 where its size varies.

    Parameters: `execute_delay_ms`, the time an execution takes; `instance_wise_delay_multiplier`, by which, times
    its number, an instance takes longer; `creation_delay_sec`, the time it takes to make an instance;
    `enable_custom_tracing`, with which traced requests have events of the model, in activities of a tenth of a second;
    `nested_span_count`, how many of these activities are within each other; `single_activity_frequency`, which of
    these have a single event.
    """

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        config = source.config
        self._delay_ms = integer_parameter(config, "execute_delay_ms") or 0
        self._multiplier = integer_parameter(config, "instance_wise_delay_multiplier") or 0
        self._creation_delay_s = integer_parameter(config, "creation_delay_sec") or 0
        self._activities = _activities(config)

    def check_config(self) -> None:
        """Every input needs an output of its datatype and dims."""
        config = self.source.config
        refuse_decoupled(config)
        if len(config.input) != len(config.output):
            msg = (
                f"model '{config.name}': the identity backend needs as many outputs as inputs, got "
                f"{len(config.input)} inputs and {len(config.output)} outputs"
            )
            raise InvalidArgumentError(msg)
        signature = Signature.from_config(config)
        for name, output in pair(config).items():
            source, target = signature.inputs[name], signature.outputs[output]
            if source.datatype is not target.datatype or source.backend_dims != target.backend_dims:
                msg = (
                    f"model '{config.name}': input '{name}' ({source.datatype.config_name}, dims "
                    f"{list(source.backend_dims)}) and output '{output}' ({target.datatype.config_name}, dims "
                    f"{list(target.backend_dims)}) must be alike"
                )
                raise InvalidArgumentError(msg)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance, once the creation delay is over."""
        sleep(self._creation_delay_s)
        delay_ms = self._delay_ms * max(1, self._multiplier * spec.index)
        return IdentityInstance(self.source.config, delay_ms, self._activities)


def _activities(config: ModelConfig) -> _Activities | None:
    """What is recorded of traced requests; None for nothing.

    Raises:
        InvalidArgumentError: a parameter has no such value.
    """
    nested = integer_parameter(config, "nested_span_count") or 0
    frequency = integer_parameter(config, "single_activity_frequency", 1) or 1
    enabled = choice_parameter(config, "enable_custom_tracing", {"true": "true", "false": "false"})
    return _Activities(nested, frequency) if enabled == "true" else None


class IdentityInstance(Instance):
    """Makes responses of the requests' own tensors."""

    def __init__(self, config: ModelConfig, delay_ms: int, activities: _Activities | None = None) -> None:
        signature = Signature.from_config(config)
        self.may_block = delay_ms > 0 or activities is not None
        self._activities = activities
        self._delay_s = delay_ms / 1000
        self._lead = 1 if signature.max_batch_size > 0 else 0
        # in the order in which responses list their outputs
        sources = {output: name for name, output in pair(config).items()}
        self._outputs = [(sources[name], spec) for name, spec in signature.outputs.items()]

    def execute(self, batch: Batch) -> None:
        """Answer each request with its inputs."""
        batch.inputs_ns = monotonic_ns()
        if self._delay_s:
            sleep(self._delay_s)
        if self._activities is not None:
            for request in batch.requests:
                if request.trace is not None and request.trace.timestamps:
                    _record(self._activities, request.trace)
        batch.outputs_ns = monotonic_ns()
        batch.responses = [self._respond(request) for request in batch.requests]

    def _respond(self, request: InferRequest) -> InferResponse:
        wanted, inputs = request.outputs, request.inputs
        outputs: dict[str, Tensor] = {}
        for source, spec in self._outputs:
            if wanted and spec.name not in wanted:
                continue
            tensor = inputs.get(source)
            if tensor is None:
                outputs[spec.name] = self._zeros(spec, request.batch_size)
            else:
                outputs[spec.name] = self._reshaped(spec, tensor) if spec.reshaped else tensor
        return InferResponse(outputs, dict(RESPONSE_PARAMETERS))

    def _zeros(self, spec: TensorSpec, batch_size: int) -> Tensor:
        """What stands for an optional input that was not sent."""
        lead = (batch_size,) if self._lead else ()
        shape = lead + tuple([1 if dim == -1 else dim for dim in spec.dims])
        return Tensor(spec.datatype, shape, bytes(prod(shape) * (spec.datatype.itemsize or LENGTH_BYTES)))

    def _reshaped(self, spec: TensorSpec, tensor: Tensor) -> Tensor:
        lead, shape = self._lead, tensor.shape
        return tensor.reshaped(shape[:lead] + match_wildcards(shape[lead:], spec.backend_dims, spec.dims))


def _record(activities: _Activities, trace: Trace) -> None:
    """Record one activity, a single event, and activities within each other."""

    def happened(name: str) -> None:
        trace.events.extend((name, monotonic_ns()))

    happened("CUSTOM_ACTIVITY_START")
    sleep(_ACTIVITY_S)
    happened("CUSTOM_ACTIVITY_END")
    happened(_SINGLE)
    for number in range(activities.nested):
        happened(f"CUSTOM_ACTIVITY{number}_START")
        sleep(_ACTIVITY_S)
        if number % activities.frequency == 0:
            happened(_SINGLE)
    for number in reversed(range(activities.nested)):
        happened(f"CUSTOM_ACTIVITY{number}_END")


def pair(config: ModelConfig) -> dict[str, str]:
    """Input → output: INPUT3 goes to OUTPUT3 where the names are such, else each to the one in its position."""
    outputs = [output.name for output in config.output]
    renamed = {entry.name: entry.name.replace("INPUT", "OUTPUT", 1) for entry in config.input}
    if set(renamed.values()) == set(outputs):
        return renamed
    return dict(zip(renamed, outputs, strict=True))
