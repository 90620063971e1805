"""A request for chat or completions, read: what each choice asks of the model."""

from dataclasses import dataclass
from typing import Any, Final

from halimede.core.datatypes import BYTES
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Tensor
from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import DEFAULTS, EXTENSIONS, SAMPLING, IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.messages import conversation, read_messages
from halimede.frontends.openai.profile import SAMPLING_PARAMETERS
from halimede.frontends.openai.tensors import json_tensor, value_tensor
from halimede.frontends.openai.tool_prompts import tools_for_template, with_read_calls

_INT64: Final = 1 << 63
_COMMON: Final = frozenset(
    (*SAMPLING, "model", "stream", "stream_options", "n", "stop", "logprobs", "max_completion_tokens")
)
_CHAT: Final = _COMMON | {
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "top_logprobs", "modalities",
    "audio", "functions", "function_call",
}  # fmt: skip
_COMPLETIONS: Final = _COMMON | {"prompt", "echo", "suffix", "best_of"}
_NOT_SERVED: Final = ("audio", "functions", "function_call", "suffix")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What is asked for.

    Attributes:
        inputs: of each choice, in order: name → tensor.
        prompts: the texts of which the prompts consist, for counts of tokens; of a model that takes messages, none.
        choices: how many choices each prompt has.
        echo: the text that each choice begins with.
        stop: the texts before which an output ends.
        max_tokens: the most tokens of an output; 0 if that is not known.
        stream: as server-sent events.
        include_usage: a stream ends with the usage.
        chat: it is a conversation.
        source: the field of the request that has the prompts.
    """

    inputs: list[dict[str, Tensor]]
    prompts: list[str]
    choices: int
    echo: list[str]
    stop: tuple[str, ...]
    max_tokens: int
    stream: bool
    include_usage: bool
    chat: bool
    source: str


def read_chat(document: dict[str, Any], known: KnownModel, ignored: IgnoredFields) -> TextRequest:
    """A request for chat.

    Raises:
        HalimedeError: what is wrong with it, or what the model cannot do.
    """
    messages = read_messages(document.get("messages"), raw="messages" in known.profile.inputs)
    _refuse_not_served(document)
    if document.get("modalities") not in (None, ["text"]):
        raise FieldError("modalities", "only the modality 'text' is served")
    extra = _passed_on(document, known)
    spec = known.profile.inputs.get("messages")
    if spec is not None:
        extra[spec.name] = json_tensor(known.model.signature, spec, "messages", messages)
        prompts = [""]
    elif known.files.template is None:
        assert known.files.problem is not None
        msg = f"model '{known.model.name}' cannot chat: {known.files.problem.message}"
        raise FieldError("messages", msg)
    else:
        try:
            prompt = known.files.template.render(
                with_read_calls(conversation(messages)), tools_for_template(document)
            )
        except InvalidArgumentError as error:
            raise FieldError("messages", error.message) from None
        prompts = [fields.checked_text("messages", prompt)]
    return _read(document, known, ignored, prompts, extra, chat=True)


def read_completion(document: dict[str, Any], known: KnownModel, ignored: IgnoredFields) -> TextRequest:
    """A request for completions. Raises as `read_chat` does."""
    prompts = fields.texts(document, "prompt")
    _refuse_not_served(document)
    best_of = document.get("best_of")
    if best_of is not None and best_of != fields.choices(document):
        raise FieldError("best_of", "'best_of' other than 'n' is not supported")
    return _read(document, known, ignored, prompts, _passed_on(document, known), chat=False)


def _refuse_not_served(document: dict[str, Any]) -> None:
    for name in _NOT_SERVED:
        if document.get(name):
            raise FieldError(name, f"'{name}' is not supported", "unsupported_parameter")


def _read(
    document: dict[str, Any],
    known: KnownModel,
    ignored: IgnoredFields,
    prompts: list[str],
    extra: dict[str, Tensor],
    *,
    chat: bool,
) -> TextRequest:
    profile, signature = known.profile, known.model.signature
    stream = fields.flag(document, "stream")
    count = fields.choices(document)
    if count * len(prompts) > fields.MAX_PROMPTS:
        msg = f"'n' times the number of prompts is {count * len(prompts)}; at most {fields.MAX_PROMPTS} are allowed"
        raise FieldError("n", msg)
    stop = fields.stop_words(document)
    sampling = _sampling(document, known, ignored, _CHAT if chat else _COMPLETIONS)
    options = document.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise FieldError("stream_options", "'stream_options' must be an object")
    include_usage = stream and fields.flag(options or {}, "include_usage")
    # else they would come with each piece of a stream, for nobody
    counts = not stream or include_usage or "finish_reason" not in profile.outputs
    switches = {
        "stream": stream,
        "exclude_input_in_output": True,
        "return_finish_reason": True,
        "return_num_input_tokens": counts,
        "return_num_output_tokens": counts,
    }
    shared = dict(extra)
    for name, value in switches.items():
        if name in profile.inputs:
            spec = profile.inputs[name]
            shared[spec.name] = value_tensor(signature, spec, name, value)
    if stop and "stop" in profile.inputs:
        spec = profile.inputs["stop"]
        listed = spec.datatype is BYTES and spec.dims != (1,)
        make = value_tensor if listed else json_tensor
        shared[spec.name] = make(signature, spec, "stop", list(stop))
    inputs = []
    for prompt in prompts:
        for number in range(count):
            chosen = dict(sampling)
            if "seed" in chosen:
                chosen["seed"] = (chosen["seed"] + number + _INT64) % (2 * _INT64) - _INT64
            tensors = shared | _sampling_tensors(known, chosen, stop)
            if profile.prompt is not None and "messages" not in (profile.inputs if chat else ()):
                tensors[profile.prompt.name] = value_tensor(signature, profile.prompt, "prompt", prompt)
            inputs.append(tensors)
    echo = not chat and fields.flag(document, "echo")
    return TextRequest(
        inputs,
        [prompt for prompt in prompts if prompt or not chat],
        count,
        [prompt if echo else "" for prompt in prompts for _ in range(count)],
        stop,
        sampling.get("max_tokens", 0),
        stream,
        include_usage,
        chat,
        "messages" if chat else "prompt",
    )


def _sampling(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, expected: frozenset[str]
) -> dict[str, Any]:
    """Field → value of those that shape the output and that the model takes.

    Raises:
        FieldError: one is wrong, or the model does not take it, and it asks for something special.
    """
    profile = known.profile
    takes_any = SAMPLING_PARAMETERS in profile.inputs
    values: dict[str, Any] = {}
    for name, check in SAMPLING.items():
        sent = "max_completion_tokens" if name == "max_tokens" else name
        if document.get(sent) is None:
            sent = name
        if document.get(sent) is None:
            continue
        value = check(sent, document[sent])
        if takes_any or name in profile.inputs:
            values[name] = value
        elif name not in DEFAULTS or value != DEFAULTS[name]:
            msg = f"model '{known.model.name}' does not take '{sent}'"
            raise FieldError(sent, msg, "unsupported_parameter")
    for name, value in document.items():
        if name in EXTENSIONS and (takes_any or name in profile.inputs):
            if value is not None:
                values[name] = EXTENSIONS[name](name, value)
        elif name not in expected:
            ignored.note(name)
    if profile.max_tokens and (takes_any or "max_tokens" in profile.inputs):
        values.setdefault("max_tokens", profile.max_tokens)
    return values


def _sampling_tensors(known: KnownModel, values: dict[str, Any], stop: tuple[str, ...]) -> dict[str, Tensor]:
    """Each value in its own input, and those that have none together."""
    profile, signature = known.profile, known.model.signature
    tensors = {}
    rest = dict(values)
    for name in values:
        spec = profile.inputs.get(name)
        if spec is not None:
            make = json_tensor if name == "logit_bias" else value_tensor
            tensors[spec.name] = make(signature, spec, name, rest.pop(name))
    spec = profile.inputs.get(SAMPLING_PARAMETERS)
    if spec is not None:
        if stop and "stop" not in profile.inputs:
            rest["stop"] = list(stop)
        tensors[spec.name] = json_tensor(signature, spec, SAMPLING_PARAMETERS, rest)
    return tensors


def _passed_on(document: dict[str, Any], known: KnownModel) -> dict[str, Tensor]:
    """Tensors of the fields that the front end does not act on itself.

    Raises:
        FieldError: the model has no input for one that asks for something special.
    """
    wanted = {}
    tools = document.get("tools")
    choice = document.get("tool_choice")
    if tools and choice != "none":
        if not isinstance(tools, list):
            raise FieldError("tools", "'tools' must be a list")
        wanted["tools"] = tools
        if choice is not None and (choice != "auto" or "tool_choice" in known.profile.inputs):
            wanted["tool_choice"] = choice
        parallel = document.get("parallel_tool_calls")
        if parallel is not None and (not parallel or "parallel_tool_calls" in known.profile.inputs):
            wanted["parallel_tool_calls"] = parallel
    form = document.get("response_format")
    if form is not None and form != {"type": "text"}:
        wanted["response_format"] = form
    for name in ("logprobs", "top_logprobs"):
        value = document.get(name)
        if value is not None and value is not False:
            wanted[name] = value
    tensors = {}
    for name, value in wanted.items():
        spec = known.profile.inputs.get(name)
        told = name != "logprobs" or "logprobs" in known.profile.outputs
        if spec is None or not told:
            msg = f"model '{known.model.name}' does not take '{name}'"
            raise FieldError(name, msg, "unsupported_parameter")
        tensors[spec.name] = json_tensor(known.model.signature, spec, name, value)
    return tensors
