"""What a model takes and gives, compiled from its configuration for the request path."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from halimede.config.model_config_pb2 import (
    BatchInput,
    BatchOutput,
    ModelConfig,
    ModelSequenceBatching,
    ModelTensorReshape,
)
from halimede.config.token_batching import TokenBatching, read_token_batching
from halimede.core.datatypes import BOOL, BY_NUMBER, FP32, INT32, Datatype
from halimede.core.errors import InternalError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: its name.
        datatype: its datatype.
        dims: the shape clients see, without the batch dimension; -1 for a variable size.
        backend_dims: the shape the backend sees, likewise; differs from `dims` where `reshape` is set.
        optional: (inputs) a request may leave it out.
        ragged: (inputs) requests of different shapes are batched, flattened.
        label_filename: (outputs) the file with its class labels, "" for none.
        reshaped: clients and the backend see different shapes.
        row_bytes: bytes of a tensor without its batch dimension, if clients and the backend always see exactly
            `dims`; else 0.
    """

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    backend_dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False
    label_filename: str = ""
    reshaped: bool = field(init=False)
    row_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reshaped", self.dims != self.backend_dims)
        fixed = -1 not in self.dims and not self.reshaped
        object.__setattr__(self, "row_bytes", prod(self.dims) * self.datatype.itemsize if fixed else 0)


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A tensor that is kept for a sequence: an output of one request, an input of the next.

    Attributes:
        input: as the model takes it.
        output: as the model gives it.
        config: what the configuration says of it.
    """

    input: TensorSpec
    output: TensorSpec
    config: ModelSequenceBatching.State


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives.

    Attributes:
        max_batch_size: 0 for a model without batch dimension.
        inputs: name → input, in the order of the configuration.
        outputs: name → output, likewise.
        decoupled: a request may have any number of responses.
        batch_inputs: tensors made from the batch itself, for ragged inputs.
        batch_outputs: outputs cut along an input's shape.
        controls: inputs by which the sequence batcher tells the model about a sequence; clients do not send them.
        states: name of the input → the input and the output by which a state comes and goes.
        tokens: how batches are closed by tokens; None if they are closed by rows.
        filled: inputs of different lengths that are filled up to the longest of a batch → what with.
        ragged: names of the ragged inputs.
        backend_inputs: all that the backend gets of a request: `inputs`, `controls` and inputs of states.
        backend_outputs: all that the backend gives: `outputs`, and outputs of states that clients do not see.
        scattered: output of a `batch_output` → the input whose shape it is cut along.
    """

    max_batch_size: int
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    decoupled: bool
    batch_inputs: tuple[BatchInput, ...] = ()
    batch_outputs: tuple[BatchOutput, ...] = ()
    controls: dict[str, TensorSpec] = field(default_factory=dict)
    states: dict[str, StateSpec] = field(default_factory=dict)
    tokens: TokenBatching | None = None
    filled: Mapping[str, int] = field(init=False)
    ragged: tuple[str, ...] = field(init=False)
    backend_inputs: dict[str, TensorSpec] = field(init=False)
    backend_outputs: dict[str, TensorSpec] = field(init=False)
    scattered: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "filled", {} if self.tokens is None else self.tokens.fill)
        object.__setattr__(self, "ragged", tuple(name for name, spec in self.inputs.items() if spec.ragged))
        states = self.states.values()
        inputs = self.inputs | self.controls | {state.input.name: state.input for state in states}
        object.__setattr__(self, "backend_inputs", inputs)
        outputs = {state.output.name: state.output for state in states}
        object.__setattr__(self, "backend_outputs", self.outputs | outputs | self.outputs)
        sources = {
            name: source
            for out in self.batch_outputs
            for source in out.source_input[:1]
            for name in out.target_name
        }
        object.__setattr__(self, "scattered", sources)

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Signature":
        """The signature of a normalised and validated configuration."""
        inputs = {
            entry.name: TensorSpec(
                entry.name,
                BY_NUMBER[entry.data_type],
                tuple(entry.dims),
                _backend_dims(entry.dims, entry.reshape if entry.HasField("reshape") else None),
                optional=entry.optional,
                ragged=entry.allow_ragged_batch,
            )
            for entry in config.input
        }
        outputs = {
            entry.name: TensorSpec(
                entry.name,
                BY_NUMBER[entry.data_type],
                tuple(entry.dims),
                _backend_dims(entry.dims, entry.reshape if entry.HasField("reshape") else None),
                label_filename=entry.label_filename,
            )
            for entry in config.output
        }
        return cls(
            config.max_batch_size,
            inputs,
            outputs,
            config.model_transaction_policy.decoupled,
            tuple(config.batch_input),
            tuple(config.batch_output),
            _controls(config.sequence_batching),
            {state.input_name: _state(state) for state in config.sequence_batching.state},
            read_token_batching(config),
        )

    def full_dims(self, spec: TensorSpec) -> list[int]:
        """The shape that clients see, with -1 for the batch dimension where there is one."""
        return [-1, *spec.dims] if self.max_batch_size > 0 else list(spec.dims)


def _controls(batching: ModelSequenceBatching) -> dict[str, TensorSpec]:
    """The control inputs, by name; one element a request each."""
    return {
        entry.name: TensorSpec(entry.name, control_datatype(entry.control[0]), (1,), (1,))
        for entry in batching.control_input
        if entry.control
    }


def control_datatype(control: ModelSequenceBatching.Control) -> Datatype:
    """In which datatype the model takes a control."""
    if control.kind == ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID:
        return BY_NUMBER[control.data_type]
    if control.fp32_false_true:
        return FP32
    return BOOL if control.bool_false_true else INT32


def _state(state: ModelSequenceBatching.State) -> StateSpec:
    datatype, dims = BY_NUMBER[state.data_type], tuple(state.dims)
    return StateSpec(
        TensorSpec(state.input_name, datatype, dims, dims),
        TensorSpec(state.output_name, datatype, dims, dims),
        state,
    )


def _backend_dims(dims: Iterable[int], reshape: ModelTensorReshape | None) -> tuple[int, ...]:
    return tuple(dims) if reshape is None else tuple(reshape.shape)


def client_shape(spec: TensorSpec, shape: tuple[int, ...], lead: int) -> tuple[int, ...]:
    """The shape that clients see of an output that has that shape in the model.

    As in Triton, only the batch dimension and the sizes where the configuration has -1 are taken from the model's own
    shape. Without a `reshape` they see the model's shape, whatever dims the configuration says.

    Args:
        spec: of the output.
        shape: of a response, or of a whole batch.
        lead: 1 if it begins with the batch dimension, else 0.

    Raises:
        InternalError: it has another number of elements than the `reshape` makes of it.
    """
    if not spec.reshaped:
        return shape
    places = [lead + place for place, dim in enumerate(spec.backend_dims) if dim == -1]
    if not places or places[-1] < len(shape):
        sizes = iter([shape[place] for place in places])
        wanted = shape[:lead] + tuple([next(sizes) if dim == -1 else dim for dim in spec.dims])
        if prod(wanted) == prod(shape):
            return wanted
    raise InternalError(f"output tensor shape does not match size of output for '{spec.name}'")


def match_wildcards(
    source: tuple[int, ...], dims: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...]:
    """`target` with each -1 replaced by the size that `source` has where `dims` has its -1s, in order.

    Example: a tensor of shape (4, 16), dims (-1, 16) and reshape (-1, 4, 4) give (4, 4, 4).
    """
    sizes = iter([size for size, dim in zip(source, dims, strict=True) if dim == -1])
    return tuple(next(sizes) if dim == -1 else dim for dim in target)
