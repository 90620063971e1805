"""What a model says of its own tensors, and the model configuration completed from it and held against it.

Texts and rules are those of Triton's ONNX Runtime backend, for every framework whose models say all of it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from halimede.backends.parameters import parse_integer
from halimede.config.model_config_pb2 import BatchInput, ModelConfig, ModelInput, ModelOutput
from halimede.config.sequence_tensors import as_backend_sees, sequence_names
from halimede.config.signature import control_datatype
from halimede.core.datatypes import BY_NUMBER, Datatype
from halimede.core.errors import InternalError, InvalidArgumentError

logger = logging.getLogger("halimede")


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a model.

    Attributes:
        name: its name.
        element: what an element is; None if no datatype of the protocol has such elements, or it is no tensor.
        shape: the whole shape, -1 for a variable size. Empty for a scalar, and for an unknown rank where the
            framework does not tell them apart.
        refusal: why `element` is None.
    """

    name: str
    element: Datatype | None
    shape: tuple[int, ...]
    refusal: str = ""

    @property
    def datatype(self) -> Datatype:
        """What an element is.

        Raises:
            InvalidArgumentError: it is nothing that a request can have.
        """
        if self.element is None:
            raise InvalidArgumentError(self.refusal)
        return self.element


@dataclass(frozen=True, slots=True)
class Ports:
    """What a model takes and gives.

    Attributes:
        inputs: name → input that a run needs.
        defaults: name → input that a run may leave out, as the model brings a value.
        outputs: name → output.
    """

    inputs: dict[str, Port]
    defaults: dict[str, Port]
    outputs: dict[str, Port]


def complete(config: ModelConfig, ports: Ports, settings: dict[str, str]) -> None:
    """Fill in the inputs, outputs, batch size and batching that the configuration leaves out, in place.

    A configuration that lists inputs and outputs is left as it is.

    Raises:
        InternalError: it asks for batching, and the model's tensors have no variable first dimension.
        InvalidArgumentError: the model has an input or output that is no tensor.
    """
    name = config.name
    if (config.input or config.batch_input) and config.output:
        logger.info(
            "skipping model configuration auto-complete for '%s': inputs and outputs already specified", name
        )
        return
    every = [*ports.inputs.values(), *ports.outputs.values()]
    for port in every:
        _ = port.datatype
    if all(port.shape[:1] == (-1,) for port in every):
        complete_batching(config, settings)
    elif config.max_batch_size != 0:
        msg = (
            f"autofill failed for model '{name}': model does not support batching while non-zero "
            f"max_batch_size is specified"
        )
        raise InternalError(msg)
    batched = config.max_batch_size > 0
    taken = sequence_names(config)
    if not config.input and not config.batch_input:
        for key in sorted(ports.inputs.keys() - taken):
            describe(config.input.add(), ports.inputs[key], batched=batched)
    if not config.output:
        for key in sorted(ports.outputs.keys() - taken):
            describe_output(config, ports.outputs[key])


def complete_batching(config: ModelConfig, settings: dict[str, str]) -> None:
    """Set the batch size and the dynamic batcher of a model that supports batching, where they are unset."""
    if config.max_batch_size == 0:
        text = settings.get("default-max-batch-size", "4")
        config.max_batch_size = parse_integer("--backend-config default-max-batch-size", text)
        logger.info(
            "autofilled max_batch_size to %d for model '%s', as it supports batching and its configuration has no "
            "max_batch_size; set that for larger batches",
            config.max_batch_size,
            config.name,
        )
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()


def describe(entry: ModelInput | ModelOutput, port: Port, *, batched: bool) -> None:
    """Make the entry what the port is.

    Raises:
        InvalidArgumentError: the port is nothing that a request can have.
    """
    entry.name = port.name
    set_datatype(entry, port.datatype)
    dims = port.shape[1:] if batched else port.shape
    entry.dims.extend(dims or (1,))
    if not dims and batched:
        entry.reshape.SetInParent()


def describe_output(config: ModelConfig, port: Port) -> None:
    """Add the output as the port is; one that is cut with a ragged input's shapes has its dims before its own.

    Raises:
        InvalidArgumentError: the port is nothing that a response can have.
    """
    entry = config.output.add()
    cut = [
        name for each in config.batch_output if port.name in each.target_name for name in each.source_input
    ]
    sources = [each for each in config.input if each.name in cut and each.allow_ragged_batch]
    if not sources:
        describe(entry, port, batched=config.max_batch_size > 0)
        return
    entry.name = port.name
    set_datatype(entry, port.datatype)
    entry.dims.extend(_backend_dims(sources[0]) + list(port.shape[1:]))


def _backend_dims(entry: ModelInput | ModelOutput) -> list[int]:
    """The shape that the model sees, without the batch dimension."""
    return list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)


def set_datatype(entry: ModelInput | ModelOutput, datatype: Datatype) -> None:
    """Make the entry's elements these."""
    entry.data_type = datatype.number  # type: ignore[assignment]  # the stub wants the enumeration's class


def check(config: ModelConfig, ports: Ports) -> None:
    """Hold the complete configuration against the model.

    Raises:
        InternalError: the model lacks a control input.
        InvalidArgumentError: they contradict each other; the text says where.
    """
    every_input = ports.inputs | ports.defaults
    check_controls(config, every_input)
    for state in config.sequence_batching.state:  # by name, before inputs are counted
        _find(config, "input", state.input_name, every_input)
        _find(config, "output", state.output_name, ports.outputs)
    config = as_backend_sees(config)
    listed = [entry.name for entry in config.input]
    listed += [target for entry in config.batch_input for target in entry.target_name]
    required = len(ports.inputs)
    if not required <= len(listed) <= len(every_input):
        msg = (
            f"unable to load model '{config.name}', configuration expects {len(listed)} inputs, "
            f"model provides {required}"
        )
        raise InvalidArgumentError(msg)
    for entry in config.input:
        port = _find(config, "input", entry.name, every_input)
        _check_input(config, entry, port, required=entry.name in ports.inputs)
    for batch_input in config.batch_input:
        for target in batch_input.target_name:
            port = _find(config, "input", target, every_input)
            _check_datatype(config, "input", target, batch_input.data_type, port)
            check_batch_input(config, batch_input, target, port.shape)
    missing = sorted(ports.inputs.keys() - set(listed))
    if missing:
        msg = (
            f"unable to load model '{config.name}', the model requires input '{missing[0]}', which the "
            f"configuration does not list"
        )
        raise InvalidArgumentError(msg)
    scattered = {target for entry in config.batch_output for target in entry.target_name}
    for output in config.output:
        port = _find(config, "output", output.name, ports.outputs)
        _check_datatype(config, "output", output.name, output.data_type, port)
        if output.name in scattered:
            continue  # only the order of its elements counts
        dims = tuple(output.reshape.shape if output.HasField("reshape") else output.dims)
        _check_dims(config, output.name, port.shape, dims, exact=True)


def check_controls(config: ModelConfig, ports: dict[str, Port]) -> None:
    """Hold the control inputs that the configuration names against the inputs that the model has.

    Raises:
        InternalError: the model has no such input.
        InvalidArgumentError: it is of another datatype, or takes more than one element a request.
    """
    for entry in config.sequence_batching.control_input:
        name = entry.name
        if not entry.control:
            continue
        port = ports.get(name)
        if port is None:
            msg = (
                f"unable to load model '{config.name}': configuration specified sequence control '{name}', but model "
                f"does not provide that input"
            )
            raise InternalError(msg)
        start = f"unable to load model '{config.name}', sequence control '{name}'"
        dims = port.shape[1:] if config.max_batch_size > 0 else port.shape
        if tuple(dims) not in ((1,), (-1,)):
            msg = f"{start} in model has dims {_dims(dims)} but dims [1] is expected"
            raise InvalidArgumentError(msg)
        datatype = control_datatype(entry.control[0])
        if port.datatype is not datatype:
            msg = (
                f"{start}, the model expects data-type {port.datatype.config_name} but the model configuration "
                f"specifies data-type {datatype.config_name}"
            )
            raise InvalidArgumentError(msg)


def _check_input(config: ModelConfig, entry: ModelInput, port: Port, *, required: bool) -> None:
    """Do datatype and dims of an input fit, and can a request leave it out if it may?"""
    name = entry.name
    _check_datatype(config, "input", name, entry.data_type, port)
    if entry.optional and config.max_batch_size > 0:
        msg = (
            f"unable to load model '{config.name}', input '{name}' is optional; optional inputs are "
            f"supported only for models that do not batch (max_batch_size: 0)"
        )
        raise InvalidArgumentError(msg)
    if entry.optional and required:
        msg = (
            f"unable to load model '{config.name}', input '{name}' is optional in the configuration, but "
            f"the model has no default for it"
        )
        raise InvalidArgumentError(msg)
    if entry.allow_ragged_batch:
        _check_flat(config, port)
        return
    if config.max_batch_size > 0 and port.shape == (-1,) and _is_source(config, name):
        msg = (
            f"unable to load model '{config.name}', input '{name}' is flat in the model (shape [-1]), as one is in "
            f"which requests of different shapes are joined, and batch_input or batch_output refer to it: say "
            f"allow_ragged_batch: true"
        )
        raise InvalidArgumentError(msg)
    dims = tuple(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
    _check_dims(config, name, port.shape, dims, exact=False)


def _find(config: ModelConfig, side: str, name: str, ports: dict[str, Port]) -> Port:
    port = ports.get(name)
    if port is None:
        msg = (
            f"unable to load model '{config.name}', unexpected inference {side} '{name}', "
            f"allowed {side}s are: {', '.join(sorted(ports))}"
        )
        raise InvalidArgumentError(msg)
    return port


def _check_datatype(config: ModelConfig, side: str, name: str, number: int, port: Port) -> None:
    if port.datatype.number != number:
        listed = BY_NUMBER[number].config_name if number in BY_NUMBER else "TYPE_INVALID"
        msg = (
            f"unable to load model '{config.name}', configuration expects datatype {listed} "
            f"for {side} '{name}', model provides {port.datatype.config_name}"
        )
        raise InvalidArgumentError(msg)


def _is_source(config: ModelConfig, name: str) -> bool:
    """Whether a tensor is made or cut by the shapes that the input has in the requests."""
    made = any(name in each.source_input for each in config.batch_input)
    return made or any(name in each.source_input for each in config.batch_output)


def _check_flat(config: ModelConfig, port: Port) -> None:
    """An input that all requests share, one after the other, is flat."""
    if port.shape not in ((), (-1,)):
        msg = (
            f"unable to load model '{config.name}', ragged input '{port.name}' must have shape [-1] in the "
            f"model, but the model provides {_dims(port.shape)}"
        )
        raise InvalidArgumentError(msg)


def check_batch_input(
    config: ModelConfig, batch_input: BatchInput, name: str, shape: tuple[int, ...]
) -> None:
    """Does the model's input of that name and whole shape, empty if unknown, take what is made from the batch?

    Raises:
        InvalidArgumentError: that is a tensor of another rank, or of items of another rank.
    """
    kind = batch_input.kind
    expected: tuple[int, ...] = (-1,)
    if kind == BatchInput.BATCH_ITEM_SHAPE:
        ranks = [
            len(_backend_dims(entry)) for entry in config.input if entry.name in batch_input.source_input
        ]
        expected = (-1, *ranks)
    fits = len(shape) == len(expected) and shape[1:] in (expected[1:], (-1,) * (len(expected) - 1))
    if shape and not fits:
        msg = (
            f"unable to load model '{config.name}', batch input '{name}' of kind {BatchInput.Kind.Name(kind)} "
            f"has shape {_dims(expected)}, but the model provides {_dims(shape)}"
        )
        raise InvalidArgumentError(msg)


def _check_dims(
    config: ModelConfig, name: str, shape: tuple[int, ...], dims: tuple[int, ...], *, exact: bool
) -> None:
    """Do the dims of the configuration fit the model's shape?"""
    where = f"model '{config.name}', tensor '{name}'"
    batched = config.max_batch_size > 0
    if batched and shape[:1] != (-1,):
        msg = (
            f"{where}: for the model to support batching the shape should have at least 1 dimension and the "
            f"first dimension must be -1; but shape expected by the model is {_dims(shape)}"
        )
        raise InvalidArgumentError(msg)
    if not batched and not shape:
        if set(dims) <= {1}:  # one element, since a configuration has no scalars
            return
        msg = (
            f"unable to load model '{config.name}', scalar tensor '{name}', should only provide 1 in the model "
            f"configuration when the model doesn't support batching. Model configuration provided: {_dims(dims)}."
        )
        raise InvalidArgumentError(msg)
    full = (-1, *dims) if batched else dims
    wrong = [
        index
        for index, (expected, dim) in enumerate(zip(shape, full, strict=False))
        if expected != dim and (exact or expected != -1)
    ]
    if wrong or len(full) != len(shape):
        note = (
            f" (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            f"making complete shape {_dims(full)})"
            if batched
            else f" (shape {_dims(full)})"
        )
        where_wrong = ""
        if len(full) == len(shape):
            index = wrong[0]
            where_wrong = (
                f"dimension {index} is {shape[index]} in the model and {full[index]} in the configuration; "
            )
        msg = (
            f"{where}: the model expects {len(shape)} dimensions (shape {_dims(shape)}) but the model "
            f"configuration specifies {len(full)} dimensions{note}: {where_wrong}write "
            f"dims: [ {', '.join(map(str, shape[1:] if batched else shape))} ]"
        )
        raise InvalidArgumentError(msg)


def _dims(dims: Sequence[int]) -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"
