"""A request for chat or completions, read: what each choice asks of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from halimede.config.signature import TensorSpec
from halimede.core.datatypes import BYTES
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Tensor
from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.messages import conversation, read_messages
from halimede.frontends.openai.profile import (
    PROMPT,
    PROMPT_LOGPROBS,
    PROMPT_TOKENS,
    RETURN_PROMPT,
    SAMPLING_PARAMETERS,
)
from halimede.frontends.openai.published_fields import FORMS, asks_for_nothing, check_fields
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.sampling_fields import read_sampling, sampling_tensors
from halimede.frontends.openai.template_limits import (
    ON_LOOP,
    USUAL,
    TemplateLimitError,
    TemplateLimits,
    TooSlowForLoopError,
)
from halimede.frontends.openai.template_options import read_template_options
from halimede.frontends.openai.tensors import json_tensor, value_tensor
from halimede.frontends.openai.tool_prompts import tools_for_template, with_read_calls

_INT64: Final = 1 << 63


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
        id: what the client calls the request, "" for nothing.
        stop_shown: an output ends after the stop word, not before it.
        sent: what the model calls a field → what the request calls it.
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
    id: str = ""
    stop_shown: bool = False
    sent: Mapping[str, str] = field(default_factory=dict)


def read_chat(
    document: dict[str, Any],
    known: KnownModel,
    ignored: IgnoredFields,
    limits: TemplateLimits = USUAL,
) -> TextRequest:
    """A request for chat.

    Args:
        document: the request.
        known: the model.
        ignored: hears of fields that nobody publishes.
        limits: what the chat template may take.

    Raises:
        TooSlowForLoopError: it takes more than the limits `ON_LOOP`, which were given.
        HalimedeError: what is wrong with it, or what the model cannot do.
    """
    messages = read_messages(document.get("messages"), raw="messages" in known.profile.inputs)
    if document.get("modalities") not in (None, ["text"]):
        raise FieldError("modalities", "only the modality 'text' is served")
    fields.flag(document, "logprobs")
    fields.flag(document, "parallel_tool_calls")
    extra = _passed_on(document, known, ignored, Call.CHAT_COMPLETIONS)
    spec = known.profile.inputs.get("messages")
    if spec is not None:
        extra[spec.name] = json_tensor(known.model.signature, spec, "messages", messages)
        prompts = [""]
    else:
        prompts = [render_prompt(document, messages, known, limits)]
    return _read(document, known, prompts, extra, chat=True)


def render_prompt(
    document: dict[str, Any], messages: list[dict[str, Any]], known: KnownModel, limits: TemplateLimits
) -> str:
    """What the chat template makes of the messages. Raises as `read_chat` does."""
    files, tools = known.files, tools_for_template(document)
    template = (tools and files.tool_template) or files.template
    if template is None:
        assert files.problem is not None
        raise FieldError("messages", f"model '{known.model.name}' cannot chat: {files.problem.message}")
    options = read_template_options(document, template)
    told = conversation(messages, parts=template.loops_over_content, developer=template.names_developer)
    try:
        prompt = template.render(with_read_calls(told), tools, options, limits)
    except TemplateLimitError as error:
        if limits is ON_LOOP:
            raise TooSlowForLoopError from None
        raise FieldError("messages", error.message) from None
    except InvalidArgumentError as error:
        raise FieldError("messages", error.message) from None
    return fields.checked_text("messages", prompt)


def read_completion(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, *, details: bool = False
) -> TextRequest:
    """A request for completions. Raises as `read_chat` does.

    Args:
        document: the request.
        known: the model.
        ignored: hears of fields that nobody publishes.
        details: the model tells its tokens and their log probabilities in vLLM's format, if it can.
    """
    prompts = fields.prompts(document, "prompt")
    if not isinstance(prompts[0], str) and PROMPT_TOKENS not in known.profile.inputs:
        raise FieldError("prompt", f"model '{known.model.name}' takes no token ids in 'prompt'; send text")
    if document.get("logprobs") is True:
        raise FieldError("logprobs", "'logprobs' of completions must be a whole number")
    _check_echo(document, known, text=isinstance(prompts[0], str))
    best_of = document.get("best_of")
    if best_of is not None and best_of != fields.choices(document):
        raise FieldError("best_of", "'best_of' other than 'n' is not supported")
    passed = _passed_on(document, known, ignored, Call.COMPLETIONS)
    return _read(document, known, prompts, passed, chat=False, details=details)


def _check_echo(document: dict[str, Any], known: KnownModel, *, text: bool) -> None:
    """Refuse to repeat a prompt in a way that only some models can."""
    if not fields.flag(document, "echo") or _repeats(known):
        return
    if not text:
        raise FieldError("echo", "'echo' needs a 'prompt' that is text, not token ids, with this model")
    if document.get("logprobs") is not None:
        msg = "'echo' with 'logprobs' is not supported: the model tells no log probabilities of the 'prompt'"
        raise FieldError("echo", msg, "unsupported_parameter")


def _repeats(known: KnownModel) -> bool:
    """Whether the model itself can repeat the prompt, with its log probabilities."""
    return RETURN_PROMPT in known.profile.inputs and PROMPT in known.profile.outputs


def _check_limits(
    document: dict[str, Any], known: KnownModel, sampling: dict[str, Any], *, echo: bool
) -> None:
    """Refuse what is possible in some requests only.

    Raises:
        FieldError: no token is asked for, and nothing of the prompt; or what no stream has.
    """
    of_prompt = document.get(PROMPT_LOGPROBS) is not None
    if of_prompt and fields.flag(document, "stream"):
        raise FieldError(PROMPT_LOGPROBS, "'prompt_logprobs' cannot be streamed")
    if sampling.get("max_tokens") == 0 and not (echo and _repeats(known)) and not of_prompt:
        name = "max_tokens" if document.get("max_completion_tokens") is None else "max_completion_tokens"
        msg = f"'{name}' must be an integer from 1, unless the model tells its prompt for 'echo' or 'prompt_logprobs'"
        raise FieldError(name, msg)


def _read(
    document: dict[str, Any],
    known: KnownModel,
    prompts: list[str] | list[list[int]],
    extra: dict[str, Tensor],
    *,
    chat: bool,
    details: bool = False,
) -> TextRequest:
    profile, signature = known.profile, known.model.signature
    stream = fields.flag(document, "stream")
    count = fields.choices(document)
    if count * len(prompts) > fields.MAX_PROMPTS:
        msg = f"'n' times the number of prompts is {count * len(prompts)}; at most {fields.MAX_PROMPTS} are allowed"
        raise FieldError("n", msg)
    stop = fields.stop_words(document)
    sampling = read_sampling(document, known, Call.CHAT_COMPLETIONS if chat else Call.COMPLETIONS)
    echo = not chat and fields.flag(document, "echo")
    _check_limits(document, known, sampling, echo=echo)
    repeats = echo and _repeats(known)
    stop_shown = fields.flag(document, "include_stop_str_in_output")
    include_usage = fields.usage_wanted(document) and stream
    # else they would come with each piece of a stream, for nobody
    counts = not stream or include_usage or "finish_reason" not in profile.outputs
    details = details and "logprobs" in profile.outputs and SAMPLING_PARAMETERS in profile.inputs
    more = {"logprobs": 0} if details and "return_logprobs" in profile.inputs else {}
    switches = {
        "stream": stream,
        "exclude_input_in_output": True,
        "return_finish_reason": True,
        "return_num_input_tokens": counts,
        "return_num_output_tokens": counts,
        "return_logprobs": details,
        RETURN_PROMPT: repeats,
    }
    shared = dict(extra)
    for name, value in switches.items():
        if name in profile.inputs:
            spec = profile.inputs[name]
            shared[spec.name] = value_tensor(signature, spec, name, value)
    if stop and "stop" in profile.inputs and not (stop_shown and SAMPLING_PARAMETERS not in profile.inputs):
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
            tensors = shared | sampling_tensors(known, chosen, stop, more)
            if profile.prompt is not None and "messages" not in (profile.inputs if chat else ()):
                text = prompt if isinstance(prompt, str) else ""
                tensors[profile.prompt.name] = value_tensor(signature, profile.prompt, "prompt", text)
                if not isinstance(prompt, str):
                    spec = profile.inputs[PROMPT_TOKENS]
                    tensors[spec.name] = json_tensor(signature, spec, "prompt", prompt)
            inputs.append(tensors)
    return TextRequest(
        inputs,
        [prompt if isinstance(prompt, str) else "" for prompt in prompts if prompt or not chat],
        count,
        [
            prompt if echo and not repeats and isinstance(prompt, str) else ""
            for prompt in prompts
            for _ in range(count)
        ],
        stop,
        sampling.get("max_tokens", 0),
        stream,
        include_usage,
        chat,
        "messages" if chat else "prompt",
        fields.request_id(document),
        stop_shown,
        _sent(document, profile.prompt, "messages" if chat else "prompt"),
    )


def _sent(document: dict[str, Any], prompt: TensorSpec | None, source: str) -> dict[str, str]:
    """What a model may call a field in its errors → what the request calls it."""
    names = {name: name for name in document}
    if document.get("max_completion_tokens") is not None:
        names["max_tokens"] = "max_completion_tokens"
    form = next((name for name in FORMS if document.get(name) not in (None, False)), "")
    if form:
        names |= dict.fromkeys(("structured_outputs", form), form)
    if document.get("echo") and PROMPT_LOGPROBS not in document:
        names[PROMPT_LOGPROBS] = "echo"
    if prompt is not None:
        names |= dict.fromkeys((prompt.name, PROMPT_TOKENS), source)
    return names


def _passed_on(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, call: Call
) -> dict[str, Tensor]:
    """Tensors of the fields that the front end does not act on itself.

    Raises:
        FieldError: the model has no input for one that asks for something special.
    """
    wanted = check_fields(document, call, known.profile.inputs, ignored)
    if call is Call.CHAT_COMPLETIONS and "add_special_tokens" in known.profile.inputs:
        wanted.setdefault("add_special_tokens", False)  # the template has them
    tools = document.get("tools")
    choice = document.get("tool_choice")
    if not isinstance(tools, list | None):
        raise FieldError("tools", "'tools' must be a list")
    if tools and choice != "none":
        wanted["tools"] = tools
        if choice is not None and (choice != "auto" or "tool_choice" in known.profile.inputs):
            wanted["tool_choice"] = choice
        parallel = document.get("parallel_tool_calls")
        if parallel is not None and (not parallel or "parallel_tool_calls" in known.profile.inputs):
            wanted["parallel_tool_calls"] = parallel
    elif choice not in (None, "none", "auto"):
        raise FieldError("tool_choice", f"'tool_choice' is {choice!r:.64}, but there are no 'tools'")
    form = document.get("response_format")
    if form is not None and form != {"type": "text"}:
        wanted["response_format"] = form
    for name in ("logprobs", "top_logprobs"):
        value = document.get(name)
        if value is not False and not asks_for_nothing(call, name, value):
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
