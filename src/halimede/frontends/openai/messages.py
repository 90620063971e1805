"""The messages of a conversation."""

from typing import Any, Final

from halimede.frontends.openai.errors import FieldError

_ROLES: Final = frozenset(("developer", "system", "user", "assistant", "tool", "function"))
_MAX_MESSAGES: Final = 4096
_WITHOUT_CONTENT: Final = ("assistant", "function")
"""Roles whose messages need none."""
_NOT_SERVED: Final = ("audio", "function_call")
"""Members of messages that say something which no template gets."""


def read_messages(value: Any, *, raw: bool) -> list[dict[str, Any]]:
    """The messages of a request.

    Args:
        value: what the request has.
        raw: the model takes them as they are; otherwise they may consist of text only.

    Raises:
        FieldError: they are not messages, or not of text.
    """
    if not isinstance(value, list) or not value:
        raise FieldError("messages", "'messages' must be a list of messages that is not empty")
    if len(value) > _MAX_MESSAGES:
        raise FieldError(
            "messages", f"'messages' has {len(value)} elements; at most {_MAX_MESSAGES} are allowed"
        )
    for number, message in enumerate(value):
        place = f"messages[{number}]"
        if not isinstance(message, dict):
            raise FieldError(place, f"'{place}' must be an object with a role and content")
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise FieldError(f"{place}.role", f"'{place}.role' must be one of {', '.join(sorted(_ROLES))}")
        if not raw:
            _check_content(message.get("content"), f"{place}.content", role)
            _check_others(message, place)
    return value


def _check_others(message: dict[str, Any], place: str) -> None:
    """Check what a message has beside its content."""
    for name in _NOT_SERVED:
        if message.get(name) is not None:
            msg = f"'{place}.{name}' is not supported"
            raise FieldError(f"{place}.{name}", msg, "unsupported_parameter")
    if not isinstance(message.get("refusal"), str | None):
        raise FieldError(f"{place}.refusal", f"'{place}.refusal' must be a string")
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None):
        raise FieldError(f"{place}.tool_calls", f"'{place}.tool_calls' must be a list")
    for number, call in enumerate(calls or ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            where = f"{place}.tool_calls[{number}]"
            raise FieldError(
                where, f"'{where}' must be an object of type 'function' with a function that has a name"
            )


def _check_content(content: Any, place: str, role: str) -> None:
    if isinstance(content, str) or (content is None and role in _WITHOUT_CONTENT):
        return
    if not isinstance(content, list):
        raise FieldError(place, f"'{place}' must be a string or a list of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        texts = ("text", "refusal") if role == "assistant" else ("text",)
        if kind not in texts or not isinstance(part.get(kind), str):
            shown = f"a part of type '{kind[:32]}'" if isinstance(kind, str) else "something else"
            msg = f"'{place}' has {shown}; only parts of type 'text' are served"
            raise FieldError(place, msg)


def conversation(
    messages: list[dict[str, Any]], *, parts: bool = False, developer: bool = False
) -> list[dict[str, Any]]:
    """The messages as templates expect them.

    Args:
        messages: the request's.
        parts: the template goes through the parts of a message; otherwise each is one string.
        developer: the template knows the role `developer`; otherwise it is `system`.
    """
    return [
        {
            **message,
            "role": "system" if message["role"] == "developer" and not developer else message["role"],
            "content": _told(_content(message), parts=parts),
        }
        for message in messages
    ]


def _content(message: dict[str, Any]) -> Any:
    """What a message says, which may be why the assistant has refused to answer."""
    content = message.get("content")
    refuses = not content and message["role"] == "assistant" and message.get("refusal") is not None
    return message["refusal"] if refuses else content


def _told(content: Any, *, parts: bool) -> Any:
    if not isinstance(content, list):
        return content
    if parts:
        return [{"type": "text", "text": part[part["type"]]} for part in content]
    return "".join(part[part["type"]] for part in content)
