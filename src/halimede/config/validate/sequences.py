"""The sequence batcher: control tensors and strategies."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import DataType, ModelConfig, ModelSequenceBatching
from halimede.config.validate.dynamic_batching import PREFERRED_OF_OLDEST, preferred_size_problems
from halimede.config.validate.problem import Problem

Control = ModelSequenceBatching.Control

CORRELATION_ID_DATATYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")

_FALSE_AND_TRUE = {
    "int32_false_true": "[ 0, 1 ]",
    "fp32_false_true": "[ 0, 1 ]",
    "bool_false_true": "[ false, true ]",
}


def sequence_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the sequence batcher, its states aside."""
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    yield from _control_names(config)
    kinds: set[int] = set()
    for index, control_input in enumerate(batching.control_input):
        for number, control in enumerate(control_input.control):
            where = f"sequence_batching.control_input[{index}].control[{number}]"
            kind = (
                Control.Kind.Name(control.kind)
                if control.kind in Control.Kind.values()
                else str(control.kind)
            )
            if control.kind in kinds:
                message = f"sequence batching specifies multiple {kind} tensors for {config.name}"
                yield Problem(config.name, where, message, _other_kind(kinds))
            kinds.add(control.kind)
            if control.kind == Control.CONTROL_SEQUENCE_CORRID:
                yield from _correlation_id(config, control, where, kind)
            else:
                yield from _false_and_true(config, control, where, kind)
    if batching.HasField("oldest"):
        yield from preferred_size_problems(
            config,
            list(batching.oldest.preferred_batch_size),
            "sequence_batching.oldest",
            PREFERRED_OF_OLDEST,
        )
        if batching.oldest.max_candidate_sequences < 0:
            message = f"sequence batching max candidate sequences must not be negative for {config.name}"
            where = "sequence_batching.oldest.max_candidate_sequences"
            yield Problem(config.name, where, message, "max_candidate_sequences: 1")
    if batching.HasField("direct") and not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        message = f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {config.name}"
        where = "sequence_batching.direct.minimum_slot_utilization"
        yield Problem(config.name, where, message, "minimum_slot_utilization: 1.0")


def _control_names(config: ModelConfig) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, control_input in enumerate(config.sequence_batching.control_input):
        where = f"sequence_batching.control_input[{index}].name"
        name = control_input.name
        if not name:
            message = f"sequence batching control tensor must have a name for {config.name}"
            yield Problem(config.name, where, message, 'name: "START"')
        elif name in seen:
            message = (
                f"sequence batching control tensor '{name}' is specified for multiple control kinds "
                f"for {config.name}"
            )
            yield Problem(config.name, where, message, f'name: "{name}_{index}"')
        seen.add(name)


def _other_kind(kinds: set[int]) -> str:
    free = [name for name, number in Control.Kind.items() if number not in kinds]
    return f"kind: {free[0]}" if free else ""


def _false_and_true(
    config: ModelConfig, control: ModelSequenceBatching.Control, where: str, kind: str
) -> Iterator[Problem]:
    given = [name for name in _FALSE_AND_TRUE if len(getattr(control, name)) > 0]
    if not given:
        message = (
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' for {kind} for {config.name}"
        )
        yield Problem(config.name, where, message, "int32_false_true: [ 0, 1 ]")
    if len(given) > 1:
        message = (
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {kind} for {config.name}"
        )
        yield Problem(config.name, f"{where}.{given[1]}", message, f"{given[0]}: {_FALSE_AND_TRUE[given[0]]}")
    for name in given:
        if len(getattr(control, name)) != len((False, True)):
            message = (
                f"sequence batching control '{name}' must have exactly 2 entries for {kind} for {config.name}"
            )
            yield Problem(config.name, f"{where}.{name}", message, f"{name}: {_FALSE_AND_TRUE[name]}")


def _correlation_id(
    config: ModelConfig, control: ModelSequenceBatching.Control, where: str, kind: str
) -> Iterator[Problem]:
    allowed = {DataType.Value(name) for name in CORRELATION_ID_DATATYPES}
    if control.data_type not in allowed:
        *others, last = CORRELATION_ID_DATATYPES
        message = (
            f"unexpected data type for control {kind} for {config.name}. Allowed data types are "
            f"{', '.join(others)} and {last}"
        )
        yield Problem(config.name, f"{where}.data_type", message, "data_type: TYPE_UINT64")
    for name in _FALSE_AND_TRUE:
        if len(getattr(control, name)) > 0:
            message = (
                "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
                f"'bool_false_true' for {kind} for {config.name}"
            )
            yield Problem(config.name, f"{where}.{name}", message, "data_type: TYPE_UINT64")
