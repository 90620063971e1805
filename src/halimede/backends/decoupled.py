"""What backends for tests, and those that give each request one response, ask of a configuration."""

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.datatypes import BY_NUMBER, Datatype
from halimede.core.errors import InvalidArgumentError


def check_decoupled(config: ModelConfig, inputs: dict[str, Datatype], outputs: dict[str, Datatype]) -> None:
    """Hold the configuration against the only inputs and outputs that the decoupled backend has.

    Raises:
        InvalidArgumentError: they differ, the model is not decoupled, or it batches.
    """
    if not config.model_transaction_policy.decoupled:
        msg = f"{_where(config)} needs model_transaction_policy {{ decoupled: true }}"
        raise InvalidArgumentError(msg)
    check_tensors(config, inputs, outputs)


def check_tensors(config: ModelConfig, inputs: dict[str, Datatype], outputs: dict[str, Datatype]) -> None:
    """Hold the configuration against the only inputs and outputs that the backend has.

    Raises:
        InvalidArgumentError: they differ, or the model batches.
    """
    where = _where(config)
    if config.max_batch_size != 0:
        raise InvalidArgumentError(f"{where} needs max_batch_size: 0, got {config.max_batch_size}")
    listed_inputs = {entry.name: BY_NUMBER.get(entry.data_type) for entry in config.input}
    listed_outputs = {entry.name: BY_NUMBER.get(entry.data_type) for entry in config.output}
    for side, listed, expected in (("input", listed_inputs, inputs), ("output", listed_outputs, outputs)):
        if listed != expected:
            words = ", ".join(f"{name} ({datatype.config_name})" for name, datatype in expected.items())
            raise InvalidArgumentError(f"{where} needs exactly these {side}s: {words}")


def _where(config: ModelConfig) -> str:
    return f"model '{config.name}': the backend '{config.backend}'"


def refuse_decoupled(config: ModelConfig) -> None:
    """Refuse to be decoupled, for a backend that gives each request one response.

    Raises:
        InvalidArgumentError: the configuration says otherwise.
    """
    if config.model_transaction_policy.decoupled:
        msg = (
            f"model '{config.name}': the backend '{config.backend}' gives each request one response; "
            f"remove model_transaction_policy {{ decoupled: true }}"
        )
        raise InvalidArgumentError(msg)
