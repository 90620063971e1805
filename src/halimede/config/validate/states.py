"""States that the sequence batcher keeps for a sequence, and what they begin with."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import TYPE_INVALID, DataType, ModelConfig, ModelSequenceBatching
from halimede.config.validate.problem import Problem
from halimede.config.validate.tensors import WILDCARD
from halimede.core.datatypes import BY_NUMBER

State = ModelSequenceBatching.State


def state_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the sequence batcher's states."""
    seen: set[str] = set()
    yield from _tensors(config)
    for index, state in enumerate(config.sequence_batching.state):
        where = f"sequence_batching.state[{index}]"
        name = state.input_name
        if name in seen:
            message = f"State input name '{name}' specified more than once."
            yield Problem(config.name, f"{where}.input_name", message, f'input_name: "{name}_{index}"')
        seen.add(name)
        if len(state.initial_state) > 1:
            message = (
                f"initial_state field for state input '{name}' must contain exactly one or zero element. "
                f"Found '{len(state.initial_state)}' elements."
            )
            yield Problem(
                config.name, f"{where}.initial_state[1]", message, "remove all but one initial_state"
            )
        for number in range(len(state.initial_state)):
            yield from _initial_state(config, state, number, f"{where}.initial_state[{number}]")


def _tensors(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the names, datatypes and dims of states."""
    model = config.name
    inputs = {entry.name: f"input '{entry.name}'" for entry in config.input}
    inputs |= {
        entry.name: f"the control input '{entry.name}'" for entry in config.sequence_batching.control_input
    }
    outputs = {entry.name: entry for entry in config.output}
    seen: set[str] = set()
    for index, state in enumerate(config.sequence_batching.state):
        where, name = f"sequence_batching.state[{index}]", state.input_name
        if not name:
            message = f"a state of model '{model}' must specify 'input_name'"
            yield Problem(model, f"{where}.input_name", message, f'input_name: "STATE_INPUT_{index}"')
        elif name in inputs:
            message = (
                f"state input '{name}' of model '{model}' is {inputs[name]} too, which requests would send"
            )
            if "control" in inputs[name]:
                message = message.removesuffix(", which requests would send")
            yield Problem(model, f"{where}.input_name", message, f'input_name: "{name}_STATE"')
        output = state.output_name
        if not output:
            message = f"state '{name}' of model '{model}' must specify 'output_name'"
            yield Problem(model, f"{where}.output_name", message, f'output_name: "STATE_OUTPUT_{index}"')
        elif output in seen:
            message = f"state output '{output}' of model '{model}' is specified more than once"
            yield Problem(model, f"{where}.output_name", message, f'output_name: "{output}_{index}"')
        seen.add(output)
        if state.data_type not in BY_NUMBER:
            message = f"state '{name}' of model '{model}' must specify 'data_type'"
            yield Problem(model, f"{where}.data_type", message, "data_type: TYPE_FP32")
        elif output in outputs and outputs[output].data_type not in (state.data_type, TYPE_INVALID):
            listed = DataType.Name(outputs[output].data_type)
            message = (
                f"state output '{output}' of model '{model}' is {DataType.Name(state.data_type)}, but output "
                f"'{output}' is {listed}"
            )
            yield Problem(model, f"{where}.data_type", message, f"data_type: {listed}")
        if any(dim < WILDCARD for dim in state.dims):
            message = (
                f"dims of state '{name}' of model '{model}' must be 0 or more, or -1 for a variable size, got "
                f"{list(state.dims)}"
            )
            dims = [max(dim, WILDCARD) for dim in state.dims]
            yield Problem(model, f"{where}.dims", message, f"dims: {dims}")


def _initial_state(
    config: ModelConfig, state: ModelSequenceBatching.State, number: int, where: str
) -> Iterator[Problem]:
    initial, name, model = state.initial_state[number], state.input_name, config.name
    if initial.data_type != state.data_type:
        message = f"The data type used for 'initial_state' field of state '{name}' does not match the state data type."
        known = state.data_type in DataType.values()
        fix = f"data_type: {DataType.Name(state.data_type)}" if known else ""
        yield Problem(model, f"{where}.data_type", message, fix)
    if not initial.name:
        message = f"Field 'name' must be set when using initial_state for state input '{name}'."
        yield Problem(model, f"{where}.name", message, f'name: "{name} initial state"')
    if initial.WhichOneof("state_data") is None:
        message = f"initial_state setting expects state'{name}' to have state_data set"
        yield Problem(model, f"{where}.zero_data", message, "zero_data: true")
    fix = f"dims: {[1 if dim == WILDCARD else dim for dim in state.dims]}"
    if len(initial.dims) != len(state.dims):
        message = (
            f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
            f"'{name}'. {len(initial.dims)} != {len(state.dims)}"
        )
        yield Problem(model, f"{where}.dims", message, fix)
    elif any(dim < 0 for dim in initial.dims):
        message = (
            f"'initial_state' field for state input name '{name}' contains variable dimensions. "
            "The size of what a sequence begins with must be given."
        )
        yield Problem(model, f"{where}.dims", message, fix)
    else:
        for dim, given in zip(state.dims, initial.dims, strict=True):
            if dim not in (WILDCARD, given):
                message = (
                    f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                    f"{given} != {dim}"
                )
                yield Problem(model, f"{where}.dims", message, fix)
                break
