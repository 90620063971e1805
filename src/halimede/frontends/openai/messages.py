"""The messages of a conversation."""

from typing import Any, Final

from halimede.frontends.openai.errors import FieldError

_ROLES: Final = frozenset(("developer", "system", "user", "assistant", "tool", "function"))
_MAX_MESSAGES: Final = 4096


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
            _check_content(message.get("content"), f"{place}.content", optional=role == "assistant")
    return value


def _check_content(content: Any, place: str, *, optional: bool) -> None:
    if isinstance(content, str) or (content is None and optional):
        return
    if not isinstance(content, list):
        raise FieldError(place, f"'{place}' must be a string or a list of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        texts = ("text", "refusal") if optional else ("text",)  # which only assistants write
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
            "content": _told(message.get("content"), parts=parts),
        }
        for message in messages
    ]


def _told(content: Any, *, parts: bool) -> Any:
    if not isinstance(content, list):
        return content
    if parts:
        return [{"type": "text", "text": part[part["type"]]} for part in content]
    return "".join(part[part["type"]] for part in content)
