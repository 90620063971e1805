"""Tensors of a TensorFlow graph as ports, and a configuration completed from those of a SavedModel.

Rules are those of Triton's TensorFlow backend. A tensor whose rank the graph does not say, and of a GraphDef an
output's sizes too, are taken to be what the configuration says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halimede.backends.ports import Port, Ports, complete_batching, describe, describe_output, set_datatype
from halimede.backends.tensorflow.runtime import tf
from halimede.config.model_config_pb2 import BatchInput, ModelConfig, ModelInput, ModelOutput
from halimede.config.sequence_tensors import as_backend_sees, sequence_names
from halimede.core.datatypes import (
    BF16,
    BOOL,
    BYTES,
    FP16,
    FP32,
    FP64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from halimede.core.errors import InternalError

Entries = Sequence[ModelInput | ModelOutput]

_DATATYPES = {
    dtype.as_datatype_enum: datatype
    for dtype, datatype in (
        (tf.bool, BOOL),
        (tf.uint8, UINT8),
        (tf.uint16, UINT16),
        (tf.uint32, UINT32),
        (tf.uint64, UINT64),
        (tf.int8, INT8),
        (tf.int16, INT16),
        (tf.int32, INT32),
        (tf.int64, INT64),
        (tf.float16, FP16),
        (tf.bfloat16, BF16),
        (tf.float32, FP32),
        (tf.float64, FP64),
        (tf.string, BYTES),
    )
}


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An input or output of a model, and the tensor of the graph that it is.

    Attributes:
        key: the tensor's name in the graph, such as ``x:0``; "" if it is no plain tensor.
        dtype: number of its type in TensorFlow's `DataType`.
        shape: the whole shape, -1 for a variable size; None if the graph does not say its rank.
        refusal: why it cannot be used, if it is no plain tensor.
        has_default: a run may leave it out.
        loose: sizes that are variable in the graph may be fixed in the configuration, also of an output.
    """

    key: str
    dtype: int
    shape: tuple[int, ...] | None
    refusal: str = ""
    has_default: bool = False
    loose: bool = False


@dataclass(frozen=True, slots=True)
class GraphTensors:
    """What a model takes and gives, by the names that clients use."""

    inputs: Mapping[str, GraphTensor]
    outputs: Mapping[str, GraphTensor]

    def ports(self, config: ModelConfig) -> Ports:
        """The same as ports."""
        batched = config.max_batch_size > 0
        listed_inputs = _full_shapes(config.input, batched=batched)
        listed_inputs |= {entry.name: (-1,) for entry in config.input if entry.allow_ragged_batch}
        listed_inputs |= {
            target: (-1, -1) if each.kind == BatchInput.BATCH_ITEM_SHAPE else (-1,)
            for each in config.batch_input
            for target in each.target_name
        }
        listed_outputs = _full_shapes(config.output, batched=batched)
        inputs = {name: _port("input", name, each, listed_inputs) for name, each in self.inputs.items()}
        outputs = {name: _port("output", name, each, listed_outputs) for name, each in self.outputs.items()}
        return Ports(
            {name: port for name, port in inputs.items() if not self.inputs[name].has_default},
            {name: port for name, port in inputs.items() if self.inputs[name].has_default},
            outputs,
        )


def complete(config: ModelConfig, tensors: GraphTensors, settings: Mapping[str, str]) -> None:
    """Fill in what the configuration leaves out, in place.

    Inputs that it does not list are added. If it lists outputs, only those are completed, and no other added.

    Raises:
        InternalError: it asks for batching, and the model's tensors have no variable first dimension.
        InvalidArgumentError: the model has an input or output that is no tensor, or does not say its shape.
    """
    shapes = _known_shapes(config, tensors)
    if all(shape[:1] == (-1,) for shape in shapes):
        if config.max_batch_size > 0 or (shapes and not _lists_batch_dimension(config, tensors)):
            complete_batching(config, dict(settings))
    elif config.max_batch_size != 0:
        msg = (
            f"autofill failed for model '{config.name}': model does not support batching while non-zero "
            f"max_batch_size is specified"
        )
        raise InternalError(msg)
    ports = tensors.ports(as_backend_sees(config))
    batched = config.max_batch_size > 0
    taken = sequence_names(config)
    for entry in config.input:
        _fill(entry, ports.inputs.get(entry.name), batched=batched)
    listed = {entry.name for entry in config.input}
    listed.update(target for each in config.batch_input for target in each.target_name)
    for name in sorted(ports.inputs.keys() - listed - taken):
        describe(config.input.add(), ports.inputs[name], batched=batched)
    for output in config.output:
        _fill(output, ports.outputs.get(output.name), batched=batched)
    if not config.output:
        for name in sorted(ports.outputs.keys() - taken):
            describe_output(config, ports.outputs[name])


def _known_shapes(config: ModelConfig, tensors: GraphTensors) -> list[tuple[int, ...]]:
    """Shapes of the inputs, and of the outputs that are served, where the model says them."""
    listed = {entry.name for entry in as_backend_sees(config).output} if config.output else set()
    served = [each for name, each in tensors.outputs.items() if not listed or name in listed]
    return [each.shape for each in (*tensors.inputs.values(), *served) if each.shape is not None]


def _lists_batch_dimension(config: ModelConfig, tensors: GraphTensors) -> bool:
    """Whether a listed tensor has as many dims as in the model, so that the first is not left to batching."""
    sides = ((config.input, tensors.inputs), (config.output, tensors.outputs))
    for entries, known in sides:
        for entry in entries:
            tensor = known.get(entry.name)
            if tensor and tensor.shape is not None and entry.dims and len(entry.dims) == len(tensor.shape):
                return True
    return False


def _fill(entry: ModelInput | ModelOutput, port: Port | None, *, batched: bool) -> None:
    """Datatype and dims of an entry that has a name only, or one of them."""
    if port is None:
        return  # the check of the configuration names it
    if not entry.data_type:
        set_datatype(entry, port.datatype)
    if not entry.dims:
        dims = port.shape[1:] if batched else port.shape
        entry.dims.extend(dims or (1,))
        if not dims and batched:
            entry.reshape.SetInParent()


def _full_shapes(entries: Entries, *, batched: bool) -> dict[str, tuple[int, ...]]:
    """The shapes that the model should see of the tensors that have dims."""
    return {
        entry.name: ((-1,) if batched else ())
        + tuple(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
        for entry in entries
        if entry.dims
    }


def _port(side: str, name: str, tensor: GraphTensor, listed: Mapping[str, tuple[int, ...]]) -> Port:
    expected = listed.get(name)
    if not tensor.key:
        return Port(name, None, (), tensor.refusal)
    datatype = _DATATYPES.get(tensor.dtype)
    if datatype is None:
        kind = tf.dtypes.as_dtype(tensor.dtype).name
        return Port(name, None, (), f"unsupported datatype '{kind}' of {side} '{name}'")
    if tensor.shape is None:
        if expected is None:
            refusal = (
                f"the model does not say how many dimensions {side} '{name}' has; list it in config.pbtxt"
            )
            return Port(name, None, (), refusal)
        return Port(name, datatype, expected)
    shape = tensor.shape
    if tensor.loose and expected is not None and len(expected) == len(shape):
        shape = tuple(want if own == -1 else own for own, want in zip(shape, expected, strict=True))
    return Port(name, datatype, shape)
