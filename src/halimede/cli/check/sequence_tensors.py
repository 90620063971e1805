"""Where controls and states of a configuration contradict its model, and what they would be if it had its way."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from google.protobuf.text_format import MessageToString

from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput, ModelSequenceBatching
from halimede.config.sequence_tensors import sequence_names
from halimede.config.signature import control_datatype
from halimede.config.validate import Problem
from halimede.core.datatypes import BOOL, BY_NUMBER, FP32, INT32

REMOVALS = ("remove state", "remove control_input")
"""How fixes begin after which the places of others are not known."""

_FALSE_AND_TRUE = {
    INT32: ("int32_false_true", (0, 1)),
    FP32: ("fp32_false_true", (0, 1)),
    BOOL: ("bool_false_true", (False, True)),
}


def sequence_problem(
    config: ModelConfig, listed: ModelConfig, model: ModelConfig, message: str
) -> Problem | None:
    """The problem with its place in `listed` and its fix, which is made in `config`; None if it is about others.

    Args:
        config: the configuration, which is to be mended.
        listed: as the user has it.
        model: a configuration with all inputs and outputs of the model, as good as empty if it does not tell them.
        message: what the backend says of `config`.
    """
    inputs = {entry.name: entry for entry in model.input}
    outputs = {entry.name: entry for entry in model.output}
    if not inputs or not outputs:
        return None
    return _control(config, listed, inputs, message) or _state(config, listed, inputs, outputs, message)


def _control(
    config: ModelConfig, listed: ModelConfig, inputs: Mapping[str, ModelInput], message: str
) -> Problem | None:
    batching = config.sequence_batching
    places = {each.name: index for index, each in enumerate(listed.sequence_batching.control_input)}
    for index, entry in enumerate(batching.control_input):
        if f"sequence control '{entry.name}'" not in message or not entry.control:
            continue
        where = f"sequence_batching.control_input[{places.get(entry.name, index)}]"
        port = inputs.get(entry.name)
        if port is None:
            free = [each for each in _free(config, inputs.values()) if list(each.dims) in ([1], [-1])]
            name = _closest(entry.name, free)
            if name:
                entry.name = name
                return Problem(config.name, f"{where}.name", message, f'name: "{name}"')
        else:
            mended = _retyped(entry.control[0], port)
            if mended is not None:
                entry.control[0].CopyFrom(mended)
                kind = ModelSequenceBatching.Control.Kind.Name(mended.kind)
                mended.ClearField("kind")  # which is left out where it is the first one
                fix = f"control {{ kind: {kind} {_line(mended).removeprefix('{ ')}"
                return Problem(config.name, f"{where}.control[0]", message, fix)
        removed = _line(entry)
        del batching.control_input[index]
        return Problem(config.name, where, message, f"remove control_input {removed}")
    return None


def _retyped(
    control: ModelSequenceBatching.Control, port: ModelInput
) -> ModelSequenceBatching.Control | None:
    """The control in the datatype of the model's input; None if that is none for it, or the control's already."""
    datatype = BY_NUMBER[port.data_type]
    if datatype is control_datatype(control) or list(port.dims) not in ([1], [-1]):
        return None
    mended = ModelSequenceBatching.Control(kind=control.kind)
    if control.kind == ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID:
        mended.data_type = port.data_type
        return mended
    if datatype not in _FALSE_AND_TRUE:
        return None
    field, values = _FALSE_AND_TRUE[datatype]
    getattr(mended, field).extend(values)
    return mended


def _state(
    config: ModelConfig,
    listed: ModelConfig,
    inputs: Mapping[str, ModelInput],
    outputs: Mapping[str, ModelOutput],
    message: str,
) -> Problem | None:
    for index, state in enumerate(config.sequence_batching.state):
        where = f"sequence_batching.state[{index}]"
        sides: tuple[tuple[str, str, Mapping[str, ModelInput] | Mapping[str, ModelOutput]], ...]
        sides = ("input", "input_name", inputs), ("output", "output_name", outputs)
        for side, field, ports in sides:
            name = getattr(state, field)
            if f"{side} '{name}'" not in message and f"tensor '{name}'" not in message:
                continue
            port = ports.get(name)
            if port is None:
                like = [each for each in _free(config, ports.values()) if each.data_type == state.data_type]
                other = _closest(name, like)
                if not other:
                    removed = _line(state)
                    del config.sequence_batching.state[index]
                    return Problem(config.name, where, message, f"remove state {removed}")
                setattr(state, field, other)
                return Problem(config.name, f"{where}.{field}", message, f'{field}: "{other}"')
            if port.data_type != state.data_type:
                state.data_type = port.data_type
                fix = f"data_type: {BY_NUMBER[port.data_type].config_name}"
                return Problem(config.name, f"{where}.data_type", message, fix)
            dims = [] if port.HasField("reshape") else list(port.dims)
            if dims != list(state.dims):
                state.dims[:] = dims
                return Problem(config.name, f"{where}.dims", message, f"dims: {dims}")
    return None


def _free(config: ModelConfig, ports: Iterable[ModelInput | ModelOutput]) -> list[Any]:
    """The model's tensors that the configuration names nowhere."""
    named = {entry.name for entry in config.input} | {entry.name for entry in config.output}
    named |= sequence_names(config)
    return [port for port in ports if port.name not in named]


def _closest(name: str, ports: list[Any]) -> str:
    """The name that was probably meant, "" if there is none."""
    names = [port.name for port in ports]
    return next(iter([*get_close_matches(name, names, 1), *names]), "")


def _line(message: Any) -> str:
    text = MessageToString(message, as_one_line=True, use_short_repeated_primitives=True)
    return f"{{ {text.strip()} }}"
