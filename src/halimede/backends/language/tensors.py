"""The tensors of a model that generates text, which are those of Triton's vLLM backend."""

from collections.abc import Mapping
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.datatypes import BOOL, BY_NUMBER, BYTES, FP32, UINT32, Datatype
from halimede.core.errors import InvalidArgumentError

TEXT_INPUT: Final = "text_input"
STREAM: Final = "stream"
SAMPLING_PARAMETERS: Final = "sampling_parameters"
EXCLUDE_INPUT: Final = "exclude_input_in_output"
RETURN_FINISH_REASON: Final = "return_finish_reason"
RETURN_INPUT_TOKENS: Final = "return_num_input_tokens"
RETURN_OUTPUT_TOKENS: Final = "return_num_output_tokens"
RETURN_LOGPROBS: Final = "return_logprobs"
RETURN_CUMULATIVE_LOGPROB: Final = "return_cumulative_logprob"
TOP_LOGPROBS: Final = "top_logprobs"
RESPONSE_FORMAT: Final = "response_format"
TOOLS: Final = "tools"
TOOL_CHOICE: Final = "tool_choice"
PARALLEL_TOOL_CALLS: Final = "parallel_tool_calls"
ADD_SPECIAL_TOKENS: Final = "add_special_tokens"
TOKENS_AS_IDS: Final = "return_tokens_as_token_ids"
PROMPT_TOKENS: Final = "prompt_token_ids"
RETURN_PROMPT: Final = "return_prompt"
PROMPT_LOGPROBS: Final = "prompt_logprobs"
"""An input, vLLM's field as JSON, and an output."""
TRUNCATE_PROMPT: Final = "truncate_prompt_tokens"
TRUNCATION_SIDE: Final = "truncation_side"

TEXT_OUTPUT: Final = "text_output"
FINISH_REASON: Final = "finish_reason"
INPUT_TOKENS: Final = "num_input_tokens"
OUTPUT_TOKENS: Final = "num_output_tokens"
LOGPROBS: Final = "logprobs"
"""An input, OpenAI's field as JSON, and an output."""
CUMULATIVE_LOGPROB: Final = "cumulative_logprob"
TOOL_CALLS: Final = "tool_calls"
PROMPT: Final = "prompt"
STOP_REASON: Final = "stop_reason"

INPUTS: Final[dict[str, Datatype]] = {
    TEXT_INPUT: BYTES,
    STREAM: BOOL,
    SAMPLING_PARAMETERS: BYTES,
    EXCLUDE_INPUT: BOOL,
    RETURN_FINISH_REASON: BOOL,
    RETURN_INPUT_TOKENS: BOOL,
    RETURN_OUTPUT_TOKENS: BOOL,
    RETURN_LOGPROBS: BOOL,
    RETURN_CUMULATIVE_LOGPROB: BOOL,
    LOGPROBS: BYTES,
    TOP_LOGPROBS: BYTES,
    RESPONSE_FORMAT: BYTES,
    TOOLS: BYTES,
    TOOL_CHOICE: BYTES,
    PARALLEL_TOOL_CALLS: BYTES,
    ADD_SPECIAL_TOKENS: BOOL,
    TOKENS_AS_IDS: BOOL,
    PROMPT_TOKENS: BYTES,
    TRUNCATE_PROMPT: BYTES,
    TRUNCATION_SIDE: BYTES,
    RETURN_PROMPT: BOOL,
    PROMPT_LOGPROBS: BYTES,
}
"""Each has one element; all but the first are optional."""

OUTPUTS: Final[dict[str, Datatype]] = {
    TEXT_OUTPUT: BYTES,
    FINISH_REASON: BYTES,
    INPUT_TOKENS: UINT32,
    OUTPUT_TOKENS: UINT32,
    LOGPROBS: BYTES,
    CUMULATIVE_LOGPROB: FP32,
    PROMPT: BYTES,
    PROMPT_LOGPROBS: BYTES,
    TOOL_CALLS: BYTES,
    STOP_REASON: BYTES,
}
"""Each has one element."""


def complete(config: ModelConfig, inputs: Mapping[str, Datatype] = INPUTS) -> None:
    """List the tensors of a configuration that lists none, and make it decoupled if it does not say."""
    if not config.input:
        for name, datatype in inputs.items():
            config.input.add(name=name, data_type=datatype.number, dims=[1], optional=name != TEXT_INPUT)
    if not config.output:
        for name, datatype in OUTPUTS.items():
            config.output.add(name=name, data_type=datatype.number, dims=[1])
    if not config.HasField("model_transaction_policy"):
        config.model_transaction_policy.decoupled = True


def check(config: ModelConfig, inputs: Mapping[str, Datatype] = INPUTS) -> None:
    """Hold the configuration against the tensors.

    Raises:
        InvalidArgumentError: it has others, batches, or is not decoupled.
    """
    where = f"model '{config.name}': the backend '{config.backend}'"
    if not config.model_transaction_policy.decoupled:
        raise InvalidArgumentError(f"{where} needs model_transaction_policy {{ decoupled: true }}")
    if config.max_batch_size != 0:
        msg = f"{where} needs max_batch_size: 0, got {config.max_batch_size}: it forms batches itself, token by token"
        raise InvalidArgumentError(msg)
    for side, entries, known in (("input", config.input, inputs), ("output", config.output, OUTPUTS)):
        for entry in entries:
            datatype = known.get(entry.name)
            if datatype is None or BY_NUMBER.get(entry.data_type) is not datatype:
                words = ", ".join(f"{name} ({each.config_name})" for name, each in known.items())
                raise InvalidArgumentError(f"{where} has no {side} '{entry.name}' like this; it has {words}")
    for side, listed, name in (("input", config.input, TEXT_INPUT), ("output", config.output, TEXT_OUTPUT)):
        if not any(entry.name == name for entry in listed):
            raise InvalidArgumentError(f"{where} needs the {side} '{name}'")
