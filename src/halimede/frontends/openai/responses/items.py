"""The `input` of a request as messages of a chat."""

from typing import Any, Final, NamedTuple

from halimede.frontends.openai.errors import FieldError

_MAX_ITEMS: Final = 4096
_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Types of parts that are text → the member that has it."""


class PlacedMessage(NamedTuple):
    """A message of a chat, and the member of the request that it was made of, such as ``input[2]``."""

    message: dict[str, Any]
    place: str


def read_input(document: dict[str, Any]) -> list[PlacedMessage]:
    """The messages that `instructions` and `input` are: one for each item, but calls of functions join their message.

    Raises:
        FieldError: an item is malformed, or not of a type that is served.
    """
    placed = []
    instructions = document.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            raise FieldError("instructions", "'instructions' must be a string")
        placed.append(PlacedMessage({"role": "system", "content": instructions}, "instructions"))
    value = document.get("input")
    if isinstance(value, str):
        placed.append(PlacedMessage({"role": "user", "content": value}, "input"))
        return placed
    if not isinstance(value, list) or not value:
        raise FieldError("input", "'input' must be a string or a list of items that is not empty")
    if len(value) > _MAX_ITEMS:
        raise FieldError("input", f"'input' has {len(value)} items; at most {_MAX_ITEMS} are allowed")
    called: set[str] = set()
    for number, item in enumerate(value):
        _add(placed, item, f"input[{number}]", called)
    return placed


def _add(placed: list[PlacedMessage], item: Any, place: str, called: set[str]) -> None:
    if not isinstance(item, dict):
        raise FieldError(place, f"'{place}' must be an object")
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role not in _ROLES:
            raise FieldError(f"{place}.role", f"'{place}.role' must be one of {', '.join(_ROLES)}")
        content = _content(item.get("content"), f"{place}.content")
        placed.append(PlacedMessage({"role": role, "content": content}, place))
    elif kind == "function_call":
        _add_call(placed, item, place, called)
    elif kind == "function_call_output":
        identifier = _text(item, "call_id", place)
        if identifier not in called:
            msg = f"'{place}.call_id' is '{identifier[:64]}', but no function_call before it has this call_id"
            raise FieldError(f"{place}.call_id", msg)
        content = _content(item.get("output"), f"{place}.output")
        message = {"role": "tool", "tool_call_id": identifier, "content": content}
        placed.append(PlacedMessage(message, place))
    else:
        shown = f"is '{kind[:64]}'" if isinstance(kind, str) else "is not a string"
        msg = f"'{place}.type' {shown}; only message, function_call and function_call_output are served"
        raise FieldError(f"{place}.type", msg, "unsupported_value")


def _add_call(placed: list[PlacedMessage], item: dict[str, Any], place: str, called: set[str]) -> None:
    identifier = _text(item, "call_id", place)
    function = {"name": _text(item, "name", place), "arguments": _text(item, "arguments", place)}
    called.add(identifier)
    call = {"id": identifier, "type": "function", "function": function}
    if placed and placed[-1].message["role"] == "assistant":
        placed[-1].message.setdefault("tool_calls", []).append(call)
    else:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        placed.append(PlacedMessage(message, place))


def _text(item: dict[str, Any], name: str, place: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise FieldError(f"{place}.{name}", f"'{place}.{name}' must be a string")
    return value


def _content(content: Any, place: str) -> str | list[dict[str, Any]]:
    """The content of a chat's message: text as one string, otherwise its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise FieldError(place, f"'{place}' must be a string or a list of parts")
    parts = [_part(part, f"{place}[{number}]") for number, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: Any, place: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise FieldError(place, f"'{place}' must be an object with a type")
    if kind in _TEXTS:
        return {"type": "text", "text": _text(part, _TEXTS[kind], place)}
    if kind == "input_image" and part.get("file_id") is None:
        image = {"url": _text(part, "image_url", place)}
        if part.get("detail") is not None:
            image["detail"] = _text(part, "detail", place)
        return {"type": "image_url", "image_url": image}
    msg = f"'{place}' is of type '{kind[:64]}'; only text, and images with an image_url, are served"
    raise FieldError(place, msg, "unsupported_value")
