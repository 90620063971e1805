"""A model configuration completed from a DALI pipeline, and held against it.

Rules are those of Triton's DALI backend. Inputs go by name. Outputs go by order: their names are the configuration's,
or else the pipeline's.
"""

from halimede.backends.dali.definition import Definition, Slot
from halimede.backends.dali.settings import DaliSettings
from halimede.backends.parameters import parse_integer
from halimede.backends.ports import complete_batching, set_datatype
from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import InvalidArgumentError


def complete(config: ModelConfig, definition: Definition, settings: dict[str, str]) -> None:
    """Fill in what the configuration leaves out of inputs, outputs and batching, in place.

    A configuration that lists inputs and outputs keeps its `max_batch_size`, 0 too.
    """
    split = DaliSettings.of(config).split
    whole = config.input and config.output
    if config.max_batch_size == 0 and not whole:
        default = parse_integer(
            "--backend-config default-max-batch-size", settings.get("default-max-batch-size", "4")
        )
        config.max_batch_size = definition.max_batch_size or default
    if not whole:
        complete_batching(config, settings)
    batched = config.max_batch_size > 0
    listed = {entry.name: entry for entry in config.input}
    for slot in definition.inputs:
        entry = listed.get(slot.name) or config.input.add(name=slot.name)
        _fill(entry, slot, slot.ndim, batched=batched)
        # samples of a batch need no common shape
        if batched and -1 in entry.dims:
            entry.allow_ragged_batch = True
    for index, slot in enumerate(definition.outputs):
        output = config.output[index] if index < len(config.output) else config.output.add(name=slot.name)
        _fill(output, slot, _ndim(slot, output.name in split), batched=batched)


def check(config: ModelConfig, definition: Definition) -> None:
    """Hold the complete configuration against the pipeline.

    Raises:
        InvalidArgumentError: they contradict each other, or neither says what an input or output is.
    """
    split = DaliSettings.of(config).split
    batched = config.max_batch_size > 0
    inputs = {slot.name: slot for slot in definition.inputs}
    listed = {entry.name for entry in config.input}
    for entry in config.input:
        slot = inputs.get(entry.name)
        if slot is None:
            raise _wrong(
                config,
                f"unexpected inference input '{entry.name}', the pipeline's external sources are: "
                f"{', '.join(sorted(inputs)) or 'none'}",
            )
        if entry.optional:
            raise _wrong(config, f"input '{entry.name}' is optional, but a pipeline needs all of its inputs")
        _check(config, entry, slot, slot.ndim, "input", batched=batched)
    missing = sorted(inputs.keys() - listed)
    if missing:
        msg = f"the pipeline needs input '{missing[0]}', which the configuration does not list"
        raise _wrong(config, msg)
    if not inputs:
        raise _wrong(config, "its pipeline has no input; feed it through fn.external_source")
    if config.batch_input or config.batch_output:
        raise _wrong(config, "DALI takes each sample with its own shape; remove batch_input and batch_output")
    _check_outputs(config, definition, split, batched=batched)


def _check_outputs(
    config: ModelConfig, definition: Definition, split: tuple[str, ...], *, batched: bool
) -> None:
    names = [entry.name for entry in config.output]
    slots = definition.outputs
    if len(names) != len(slots):
        raise _wrong(
            config, f"the configuration lists {len(names)} outputs, but the pipeline has {len(slots)}"
        )
    places = {slot.name: index for index, slot in enumerate(slots)}
    for index, (entry, slot) in enumerate(zip(config.output, slots, strict=True)):
        if places.get(entry.name, index) != index:
            raise _wrong(
                config,
                f"output '{entry.name}' is listed as number {index + 1}, but the pipeline returns it as number "
                f"{places[entry.name] + 1}; outputs go by their order",
            )
        _check(config, entry, slot, _ndim(slot, entry.name in split), "output", batched=batched)
    for name in split:
        if name not in names:
            raise _wrong(
                config,
                f"parameter 'split_along_outer_axis' names '{name}', the outputs are: {', '.join(names)}",
            )
    if split and not batched:
        raise _wrong(config, "parameter 'split_along_outer_axis' needs a max_batch_size of at least 1")


def _ndim(slot: Slot, split: bool) -> int | None:
    """Dimensions of a row of an output."""
    return slot.ndim if slot.ndim is None or not split else max(0, slot.ndim - 1)


def _fill(entry: ModelInput | ModelOutput, slot: Slot, ndim: int | None, *, batched: bool) -> None:
    if entry.data_type == 0 and slot.datatype is not None:
        set_datatype(entry, slot.datatype)
    if not entry.dims and ndim is not None:
        entry.dims.extend([-1] * ndim or [1])
    if ndim == 0 and batched and list(entry.dims) == [1]:
        # the configuration has no scalars; it says one element instead
        entry.reshape.SetInParent()


def _check(
    config: ModelConfig,
    entry: ModelInput | ModelOutput,
    slot: Slot,
    ndim: int | None,
    side: str,
    *,
    batched: bool,
) -> None:
    say = "fn.external_source(dtype=..., ndim=...)" if side == "input" else "output_dtype and output_ndim"
    if entry.data_type == 0 or not entry.dims:
        what = "data_type" if entry.data_type == 0 else "dims"
        raise _wrong(
            config,
            f"neither configuration nor pipeline say the {what} of {side} '{entry.name}'; say it in config.pbtxt, or "
            f"in the pipeline ({say})",
        )
    if slot.datatype is not None and slot.datatype.number != entry.data_type:
        found = BY_NUMBER[entry.data_type].config_name
        raise _wrong(
            config,
            f"configuration expects datatype {found} for {side} '{entry.name}', pipeline provides "
            f"{slot.datatype.config_name}",
        )
    if BY_NUMBER[entry.data_type].config_name in ("TYPE_STRING", "TYPE_BF16"):
        found = BY_NUMBER[entry.data_type].config_name
        raise _wrong(config, f"{side} '{entry.name}' is {found}, which DALI does not have")
    dims = list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
    scalar = ndim == 0 and not batched and dims == [1]
    if ndim is not None and len(dims) != ndim and not scalar:
        raise _wrong(
            config,
            f"{side} '{entry.name}' has {len(dims)} dimensions (dims {dims}) in the configuration, but {ndim} in the "
            f"pipeline",
        )


def _wrong(config: ModelConfig, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"unable to load model '{config.name}', {text}")
