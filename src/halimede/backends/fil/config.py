"""The configuration of a forest: completed from its shape, and held against it.

Names are those that Triton's FIL backend prescribes.
"""

import logging

from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.backends.fil.onnx import INPUT, OUTPUT
from halimede.backends.parameters import parse_integer
from halimede.backends.ports import set_datatype
from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.core.datatypes import BY_NUMBER, FP32
from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")


def complete(config: ModelConfig, spec: ForestSpec, form: OutputForm, settings: dict[str, str]) -> None:
    """Fill in the input, the output, the batch size and batching that the configuration leaves out, in place.

    A configuration that lists both input and output is left as it is.

    Raises:
        InvalidArgumentError: the command line's batch size is no number.
    """
    if config.input and config.output:
        return
    if config.max_batch_size == 0:
        text = settings.get("default-max-batch-size", "4")
        config.max_batch_size = parse_integer("--backend-config default-max-batch-size", text, 1)
        logger.info(
            "autofilled max_batch_size to %d for model '%s', as the model configuration specifies none; forests "
            "take batches of any size",
            config.max_batch_size,
            config.name,
        )
    if config.max_batch_size > 1 and config.WhichOneof("scheduling_choice") is None:
        config.dynamic_batching.SetInParent()
    if not config.input:
        _describe(config.input.add(), INPUT, spec.features)
    if not config.output:
        _describe(config.output.add(), OUTPUT, form.width(spec))


def _describe(entry: ModelInput | ModelOutput, name: str, width: int) -> None:
    entry.name = name
    set_datatype(entry, FP32)
    entry.dims.append(width)


def check(config: ModelConfig, spec: ForestSpec, form: OutputForm) -> None:
    """Hold the complete configuration against the forest.

    Raises:
        InvalidArgumentError: they contradict each other; the text says where.
    """
    refuse_decoupled(config)
    if config.max_batch_size < 1:
        msg = (
            f"unable to load model '{config.name}': forests take batches of rows, so max_batch_size must be at "
            f"least 1, got {config.max_batch_size}"
        )
        raise InvalidArgumentError(msg)
    if config.batch_input or config.batch_output:
        msg = f"unable to load model '{config.name}': forests have no batch_input and no batch_output"
        raise InvalidArgumentError(msg)
    for entry in config.input:
        if entry.optional or entry.allow_ragged_batch:
            msg = f"unable to load model '{config.name}': input '{entry.name}' may be neither optional nor ragged"
            raise InvalidArgumentError(msg)
    _check_side(config, "input", list(config.input), INPUT, spec.features)
    _check_side(config, "output", list(config.output), OUTPUT, form.width(spec))


def _check_side(
    config: ModelConfig, side: str, entries: list[ModelInput] | list[ModelOutput], name: str, width: int
) -> None:
    """Is the only entry of that name, FP32 and as wide as the forest has it?"""
    where = f"unable to load model '{config.name}'"
    names = [entry.name for entry in entries]
    if names != [name]:
        msg = (
            f"{where}: the model has the one {side} '{name}', but the configuration lists {', '.join(names)}"
        )
        raise InvalidArgumentError(msg)
    (entry,) = entries
    if entry.data_type != FP32.number:
        found = BY_NUMBER[entry.data_type].config_name if entry.data_type in BY_NUMBER else "TYPE_INVALID"
        msg = f"{where}, configuration expects datatype {found} for {side} '{name}', model provides TYPE_FP32"
        raise InvalidArgumentError(msg)
    dims = list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
    if dims != [width]:
        what = "features" if side == "input" else "values for a row, as the parameters have it"
        msg = (
            f"{where}, {side} '{name}' has dims {dims} in the configuration, but the model has {width} "
            f"{what}: they must be [{width}]"
        )
        raise InvalidArgumentError(msg)
