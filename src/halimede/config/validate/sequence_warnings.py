"""Settings of the sequence batcher that are allowed, and do not do what they look like."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem

_WITHOUT_STATES = ("identity", "repeat", "square")
"""Backends that neither take states nor refuse them."""


def sequence_warnings(config: ModelConfig) -> Iterator[Problem]:
    """What the sequence batcher of a valid and complete configuration will not do, or not as its author may think."""
    if not config.HasField("sequence_batching"):
        return
    yield from _iterative(config)
    yield from _hidden_inputs(config)
    if config.sequence_batching.state and config.backend in _WITHOUT_STATES:
        message = f"states have no effect: the backend '{config.backend}' makes none"
        yield Problem(config.name, "sequence_batching.state", message, "remove state")
    if config.sequence_batching.HasField("oldest"):
        yield from _candidates(config)
    else:
        yield from _delays(config)


def _iterative(config: ModelConfig) -> Iterator[Problem]:
    batching, backend = config.sequence_batching, config.backend or config.platform
    if not batching.iterative_sequence or backend == "python":
        return
    message = (
        f"models of the backend '{backend}' cannot ask for a request again, so with iterative_sequence each sequence "
        f"is over after one request"
    )
    told = batching.control_input or batching.state
    fix = "remove iterative_sequence" if told else "replace sequence_batching by dynamic_batching { }"
    yield Problem(config.name, "sequence_batching.iterative_sequence", message, fix)


def _hidden_inputs(config: ModelConfig) -> Iterator[Problem]:
    """Inputs with the name of a control input, which takes the place of what clients send."""
    inputs = {entry.name for entry in config.input}
    for index, control_input in enumerate(config.sequence_batching.control_input):
        name = control_input.name
        if name not in inputs:
            continue
        message = f"control input '{name}' is an input too: the model gets the control in place of what requests send"
        where = f"sequence_batching.control_input[{index}].name"
        yield Problem(config.name, where, message, f'name: "{name}_CONTROL"')


def _candidates(config: ModelConfig) -> Iterator[Problem]:
    oldest = config.sequence_batching.oldest
    candidates, wanted = max(1, oldest.max_candidate_sequences), max(oldest.preferred_batch_size, default=0)
    if candidates >= wanted:
        return
    message = (
        f"batches can never have {wanted} rows: they have one request of each sequence, of which an instance has "
        f"{candidates} at most"
    )
    where = "sequence_batching.oldest.max_candidate_sequences"
    yield Problem(config.name, where, message, f"max_candidate_sequences: {wanted}")


def _delays(config: ModelConfig) -> Iterator[Problem]:
    """A delay without a utilization that ends it early, and the other way round."""
    direct, where = config.sequence_batching.direct, "sequence_batching.direct"
    delay, share = direct.max_queue_delay_microseconds, direct.minimum_slot_utilization
    if share and not delay:
        message = "minimum_slot_utilization has no effect without max_queue_delay_microseconds"
        yield Problem(
            config.name, f"{where}.minimum_slot_utilization", message, "remove minimum_slot_utilization"
        )
    if delay and not share:
        message = "max_queue_delay_microseconds has no effect without minimum_slot_utilization"
        yield Problem(
            config.name, f"{where}.max_queue_delay_microseconds", message, "minimum_slot_utilization: 1.0"
        )
