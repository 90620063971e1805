"""Tensors that pass between the sequence batcher and a model, unseen by clients: controls and states."""

from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.config.signature import Signature, control_datatype


def sequence_inputs(config: ModelConfig) -> list[ModelInput]:
    """Control inputs and inputs of states, as if clients sent them."""
    batching = config.sequence_batching
    controls = [
        ModelInput(name=each.name, data_type=control_datatype(each.control[0]).number, dims=[1])  # type: ignore[arg-type]  # the stub wants the enumeration's class
        for each in batching.control_input
        if each.control
    ]
    states = [
        ModelInput(name=each.input_name, data_type=each.data_type, dims=each.dims) for each in batching.state
    ]
    return controls + states


def sequence_outputs(config: ModelConfig) -> list[ModelOutput]:
    """Outputs of states which are not among those that clients see."""
    listed = {entry.name for entry in config.output}
    return [
        ModelOutput(name=each.output_name, data_type=each.data_type, dims=each.dims)
        for each in config.sequence_batching.state
        if each.output_name not in listed
    ]


def as_backend_sees(config: ModelConfig) -> ModelConfig:
    """The configuration with controls and states among its inputs and outputs; itself if it has none."""
    inputs, outputs = sequence_inputs(config), sequence_outputs(config)
    if not inputs and not outputs:
        return config
    whole = ModelConfig()
    whole.CopyFrom(config)
    whole.input.extend(inputs)
    whole.output.extend(outputs)
    return whole


def sequence_names(config: ModelConfig) -> set[str]:
    """Names of all inputs and outputs of the model that pass between it and the sequence batcher."""
    names = {entry.name for entry in sequence_inputs(config)}
    return names | {state.output_name for state in config.sequence_batching.state}


def backend_signature(config: ModelConfig) -> Signature:
    """The signature with controls and states among its inputs and outputs."""
    return Signature.from_config(as_backend_sees(config))
