"""What a model is to OpenAI's API: which calls it serves, and which tensors stand for which fields.

The `parameters` of its configuration say so, or the names of its tensors, as Triton's vLLM backend has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BYTES, FP32
from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai.published_fields import INPUTS, NAMED_INPUTS, PASSED_ON

TASK: Final = "openai.task"
INPUT: Final = "openai.input"
OUTPUT: Final = "openai.output"
TOKENIZER: Final = "openai.tokenizer"
MAX_TOKENS: Final = "openai.max_tokens"

TEXT_INPUT: Final = "text_input"
TEXT_OUTPUT: Final = "text_output"
EMBEDDING_REQUEST: Final = "embedding_request"
SAMPLING_PARAMETERS: Final = "sampling_parameters"
PROMPT_TOKENS: Final = "prompt_token_ids"
RETURN_PROMPT: Final = "return_prompt"
PROMPT: Final = "prompt"
PROMPT_LOGPROBS: Final = "prompt_logprobs"

_SWITCHES: Final = (
    "stream",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "return_logprobs",
    PROMPT_TOKENS,
    RETURN_PROMPT,
)
INPUT_FIELDS: Final = INPUTS | {*PASSED_ON, *_SWITCHES, SAMPLING_PARAMETERS, EMBEDDING_REQUEST, "stop"}
OUTPUT_FIELDS: Final = frozenset(
    (
        "finish_reason",
        "stop_reason",
        "tool_calls",
        "logprobs",
        "num_input_tokens",
        "num_output_tokens",
        PROMPT,
        PROMPT_LOGPROBS,
    )
)


class Task(Enum):
    """A call that a model can serve."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model takes and gives.

    Attributes:
        tasks: the calls that it serves.
        prompt: the input that takes the text; None for one that takes messages or an embedding request only.
        output: the output with the text, or with the embedding.
        inputs: field → the input that stands for it.
        outputs: field → the output that tells it.
        max_tokens: `max_tokens` of requests that do not say it; 0 for what the model does then.
        tokenizer: the directory of its tokenizer, relative to the model's; "" for the usual places.
    """

    tasks: frozenset[Task]
    prompt: TensorSpec | None
    output: TensorSpec
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    max_tokens: int = 0
    tokenizer: str = ""


class ParameterError(InvalidArgumentError):
    """A parameter of a model's configuration is wrong.

    Attributes:
        parameter: its key.
    """

    def __init__(self, model: str, parameter: str, what: str) -> None:
        super().__init__(f"model '{model}': the parameter {parameter} of its configuration {what}")
        self.parameter = parameter


def read_profile(model: str, config: ModelConfig, signature: Signature) -> Profile | None:
    """What a model is to OpenAI's API, None if it is nothing.

    Args:
        model: its name.
        config: its configuration, complete.
        signature: its tensors.

    Raises:
        ParameterError: a parameter of the configuration is wrong.
    """
    parameters = {
        key: value.string_value for key, value in config.parameters.items() if key.startswith("openai.")
    }
    usual = _is(signature.inputs, TEXT_INPUT) and _is(signature.outputs, TEXT_OUTPUT)
    if TASK not in parameters and not usual:
        if parameters:
            raise ParameterError(model, next(iter(parameters)), f"needs the parameter {TASK} beside it")
        return None
    known = INPUT_FIELDS | NAMED_INPUTS
    inputs = _fields(model, parameters, f"{INPUT}.", INPUT_FIELDS, signature.inputs, known)
    outputs = _fields(model, parameters, f"{OUTPUT}.", OUTPUT_FIELDS, signature.outputs, OUTPUT_FIELDS)
    if TASK in parameters:
        tasks = _tasks(model, parameters[TASK])
    else:
        tasks = {Task.CHAT, Task.COMPLETIONS} | ({Task.EMBEDDINGS} if EMBEDDING_REQUEST in inputs else set())
    _refuse_unknown(model, parameters)
    taken = {spec.name for spec in inputs.values()}
    prompt = _prompt(model, parameters, signature, taken)
    if prompt is None and not (Task.COMPLETIONS not in tasks and "messages" in inputs):
        msg = f"must name the input that takes the text; the model has: {', '.join(signature.inputs)}"
        raise ParameterError(model, INPUT, msg)
    return Profile(
        frozenset(tasks),
        prompt,
        _output(model, parameters, signature, tasks, {spec.name for spec in outputs.values()}),
        inputs,
        outputs,
        _max_tokens(model, parameters.get(MAX_TOKENS, "")),
        parameters.get(TOKENIZER, ""),
    )


def _is(specs: Mapping[str, TensorSpec], name: str) -> bool:
    return name in specs and specs[name].datatype is BYTES


def _tasks(model: str, text: str) -> set[Task]:
    try:
        return {Task(each.strip()) for each in text.split(",")}
    except ValueError:
        known = ", ".join(each.value for each in Task)
        raise ParameterError(
            model, TASK, f"is '{text}'; it must be one or more of {known}, separated by commas"
        ) from None


def _fields(
    model: str,
    parameters: Mapping[str, str],
    prefix: str,
    implied: frozenset[str],
    specs: Mapping[str, TensorSpec],
    known: frozenset[str],
) -> dict[str, TensorSpec]:
    """Field → tensor: by parameters, of all `known` fields, and of tensors that have the name of an `implied` one."""
    found = {name: spec for name, spec in specs.items() if name in implied}
    for key, tensor in parameters.items():
        if not key.startswith(prefix):
            continue
        field = key.removeprefix(prefix)
        if field not in known:
            raise ParameterError(model, key, f"names no field; known are {', '.join(sorted(known))}")
        if tensor not in specs:
            raise ParameterError(model, key, f"names '{tensor}', but the model has only: {', '.join(specs)}")
        found[field] = specs[tensor]
    return found


def _refuse_unknown(model: str, parameters: Mapping[str, str]) -> None:
    for key in parameters:
        if key not in {TASK, INPUT, OUTPUT, TOKENIZER, MAX_TOKENS} and not key.startswith(
            (f"{INPUT}.", f"{OUTPUT}.")
        ):
            raise ParameterError(model, key, "is not known")


def _prompt(
    model: str, parameters: Mapping[str, str], signature: Signature, taken: set[str]
) -> TensorSpec | None:
    """The input that takes the text: the one that is named, or the only one of texts that is left."""
    named = parameters.get(INPUT) or (TEXT_INPUT if _is(signature.inputs, TEXT_INPUT) else "")
    if named:
        if not _is(signature.inputs, named):
            raise ParameterError(model, INPUT, f"names '{named}', which is no input of TYPE_STRING")
        return signature.inputs[named]
    left = [spec for spec in signature.inputs.values() if spec.datatype is BYTES and spec.name not in taken]
    return left[0] if len(left) == 1 else None


def _output(
    model: str,
    parameters: Mapping[str, str],
    signature: Signature,
    tasks: set[Task],
    taken: set[str],
) -> TensorSpec:
    outputs = signature.outputs
    named = parameters.get(OUTPUT) or (TEXT_OUTPUT if _is(outputs, TEXT_OUTPUT) else "")
    datatype = FP32 if tasks == {Task.EMBEDDINGS} and not _is(outputs, named) else BYTES
    if not named:
        left = [spec for spec in outputs.values() if spec.datatype is datatype and spec.name not in taken]
        if len(left) == 1:
            return left[0]
    elif named in outputs and outputs[named].datatype is datatype:
        return outputs[named]
    kind = "TYPE_FP32" if datatype is FP32 else "TYPE_STRING"
    raise ParameterError(model, OUTPUT, f"must name an output of {kind}; the model has: {', '.join(outputs)}")


def _max_tokens(model: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 11) or not 0 < int(text) < 1 << 31:
        raise ParameterError(model, MAX_TOKENS, f"is '{text[:64]}'; it must be a whole number above 0")
    return int(text)
