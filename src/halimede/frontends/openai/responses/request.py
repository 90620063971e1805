"""A request for a response, read: it is converted to one for chat."""

from dataclasses import dataclass, replace
from typing import Any, Final

from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.published_fields import FIELDS, check_fields
from halimede.frontends.openai.responses.items import PlacedMessage, read_input
from halimede.frontends.openai.responses.tools import chat_tool, chat_tool_choice, read_tools
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.template_limits import USUAL, TemplateLimits
from halimede.frontends.openai.text_request import TextRequest, read_chat

_STORED: Final = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that refer to what a server stores."""

_OWN: Final = frozenset(("tools", "tool_choice", "top_logprobs", "stream_options"))
"""Fields that this API and chats call the same, but have in other shapes."""

_AS_IN_CHAT: Final = frozenset(FIELDS[Call.RESPONSES].keys() & FIELDS[Call.CHAT_COMPLETIONS].keys()) - _OWN
_NAMES: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "logprobs": "include",
    "reasoning_effort": "reasoning.effort",
}
"""Fields of chat → the fields of this API that they were made of."""

_LOGPROBS: Final = "message.output_text.logprobs"
INCLUDED: Final = frozenset(
    (
        _LOGPROBS,
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    )
)
"""What `include` may name. All but log probabilities belong to items that responses do not have here."""
_MAX_METADATA: Final = 16
_MAX_METADATA_KEY: Final = 64
_MAX_METADATA_VALUE: Final = 512
_MAX_TOP_LOGPROBS: Final = 20


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """What is asked for.

    Attributes:
        chat: the same as a chat with one choice.
        repeated: the members of the reply that repeat the request.
    """

    chat: TextRequest
    repeated: dict[str, Any]


def read_response(
    document: dict[str, Any],
    known: KnownModel,
    ignored: IgnoredFields,
    limits: TemplateLimits = USUAL,
) -> ResponseRequest:
    """A request for a response. The arguments are those of `read_chat`.

    Raises:
        HalimedeError: what is wrong with it, or what the model cannot do.
    """
    for name in _STORED:
        if document.get(name):
            msg = f"'{name}' is not supported: the server stores no responses. Send the whole conversation in 'input'"
            raise FieldError(name, msg, "unsupported_parameter")
    if document.get("truncation") not in (None, "disabled"):
        msg = "'truncation' must be 'disabled': input that is too long is refused"
        raise FieldError("truncation", msg, "unsupported_value")
    for name in ("store", "parallel_tool_calls"):
        fields.flag(document, name)
    metadata = _metadata(document.get("metadata"))
    tools = read_tools(document.get("tools"))
    choice = chat_tool_choice(document.get("tool_choice"))
    text, form = _text(document.get("text"))
    placed = read_input(document)
    check_fields(document, Call.RESPONSES, known.profile.inputs, ignored)
    fields.usage_wanted(document)
    chat = {name: document[name] for name in _AS_IN_CHAT if name in document}
    chat |= _effort(document.get("reasoning")) | {
        "messages": [each.message for each in placed],
        "max_tokens": document.get("max_output_tokens"),
        "stream_options": {"include_usage": True},
        "tools": [chat_tool(tool) for tool in tools],
        "tool_choice": choice,
        "response_format": form,
        **_logprobs(document),
    }
    try:
        asked = read_chat(chat, known, ignored, limits)
    except FieldError as error:
        raise _renamed(error, placed) from None
    repeated = {
        "background": False,
        "instructions": document.get("instructions"),
        "max_output_tokens": document.get("max_output_tokens"),
        "metadata": metadata,
        "parallel_tool_calls": document.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": _or(document.get("temperature"), 1.0),
        "text": text,
        "tool_choice": _or(document.get("tool_choice"), "auto"),
        "tools": tools,
        "top_p": _or(document.get("top_p"), 1.0),
        "truncation": "disabled",
    }
    sent = {name: _NAMES.get(own, own) for name, own in asked.sent.items()}
    return ResponseRequest(replace(asked, source="input", sent=sent), repeated)


def _effort(value: Any) -> dict[str, Any]:
    """The field of a chat that `reasoning` is."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError("reasoning", "'reasoning' must be an object")
    for name in value:
        if name != "effort" and value[name] is not None:
            place = f"reasoning.{name[:64]}"
            raise FieldError(place, f"'{place}' is not supported", "unsupported_parameter")
    return {"reasoning_effort": value.get("effort")}


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    fits = isinstance(value, dict) and len(value) <= _MAX_METADATA
    for key, each in value.items() if fits else ():
        fits = fits and len(key) <= _MAX_METADATA_KEY
        fits = fits and isinstance(each, str) and len(each) <= _MAX_METADATA_VALUE
    if not fits:
        msg = (
            f"'metadata' must be an object of at most {_MAX_METADATA} strings; keys have at most {_MAX_METADATA_KEY} "
            f"characters, values at most {_MAX_METADATA_VALUE}"
        )
        raise FieldError("metadata", msg)
    return dict(value)


def _text(value: Any) -> tuple[dict[str, Any], Any]:
    """The reply's `text`, and a chat's `response_format`; None for plain text."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise FieldError("text", "'text' must be an object")
    if value.get("verbosity") not in (None, "medium"):
        raise FieldError("text.verbosity", "'text.verbosity' is not supported", "unsupported_parameter")
    form = value.get("format")
    if form is None or form == {"type": "text"}:
        return {**value, "format": {"type": "text"}}, None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "json_object":
        return value, {"type": kind}
    if kind != "json_schema":
        raise FieldError(
            "text.format", "'text.format' must be an object of type text, json_schema or json_object"
        )
    if not isinstance(form.get("name"), str) or not isinstance(form.get("schema"), dict):
        raise FieldError("text.format", "'text.format' of type 'json_schema' must have a name and a schema")
    members = {name: form[name] for name in ("name", "description", "schema", "strict") if name in form}
    return value, {"type": kind, "json_schema": members}


def _logprobs(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a chat that ask for log probabilities."""
    include = document.get("include")
    if include is not None and not (
        isinstance(include, list) and all(isinstance(each, str) for each in include)
    ):
        raise FieldError("include", "'include' must be a list of strings")
    for each in include or ():
        if each not in INCLUDED:
            raise FieldError("include", f"'include' cannot have '{each:.64}'", "unsupported_value")
    top = document.get("top_logprobs")
    if top is not None and (type(top) is not int or not 0 <= top <= _MAX_TOP_LOGPROBS):
        raise FieldError("top_logprobs", f"'top_logprobs' must be an integer from 0 to {_MAX_TOP_LOGPROBS}")
    if not (include and _LOGPROBS in include):
        return {}
    return {"logprobs": True, "top_logprobs": top}


def _renamed(error: FieldError, placed: list[PlacedMessage]) -> FieldError:
    """An error of a chat's field, told of the field that the client has sent."""
    field, rest = error.field, ""
    if field.startswith("messages["):
        number, _, rest = field.removeprefix("messages[").partition("]")
        renamed = placed[int(number)].place + rest
    else:
        renamed = _NAMES.get(field, field)
    return FieldError(renamed, error.message.replace(f"'{field}'", f"'{renamed}'"), error.reason)
