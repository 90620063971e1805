"""Functions that a model may call, as this API and as chats have them."""

from typing import Any

from halimede.frontends.openai.errors import FieldError


def read_tools(value: Any) -> list[dict[str, Any]]:
    """The functions that a request offers, with all of their members.

    Raises:
        FieldError: one is malformed, or not a function.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError("tools", "'tools' must be a list")
    return [_read_tool(tool, f"tools[{number}]") for number, tool in enumerate(value)]


def _read_tool(tool: Any, place: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise FieldError(place, f"'{place}' must be an object with a type")
    if kind != "function":
        msg = f"'{place}.type' is '{kind[:64]}'; only tools of type 'function' are served"
        raise FieldError(f"{place}.type", msg, "unsupported_value")
    members: dict[str, Any] = {"type": "function"}
    for name, form, what in (
        ("name", str, "a string"),
        ("description", str, "a string"),
        ("parameters", dict, "an object"),
        ("strict", bool, "a boolean"),
    ):
        value = tool.get(name)
        if not (isinstance(value, form) or (value is None and name != "name")):
            raise FieldError(f"{place}.{name}", f"'{place}.{name}' must be {what}")
        members[name] = value
    return members


def chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A function as chats have it."""
    members = {name: value for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": members}


def chat_tool_choice(value: Any) -> Any:
    """The choice of tools as chats have it; None for none.

    Raises:
        FieldError: it is malformed, or about tools that are not served.
    """
    if value is None or value in ("none", "auto", "required"):
        return value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "function":
        return _chat_function(value, "tool_choice")
    if kind == "allowed_tools":
        allowed = value.get("tools")
        if value.get("mode") not in ("auto", "required") or not isinstance(allowed, list):
            msg = "'tool_choice' of type 'allowed_tools' must have a mode, 'auto' or 'required', and a list of tools"
            raise FieldError("tool_choice", msg)
        tools = [_chat_function(tool, f"tool_choice.tools[{number}]") for number, tool in enumerate(allowed)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": value["mode"], "tools": tools}}
    msg = (
        "'tool_choice' must be 'none', 'auto', 'required', or an object of type 'function' or 'allowed_tools'"
    )
    raise FieldError("tool_choice", msg)


def _chat_function(value: Any, place: str) -> dict[str, Any]:
    if (
        not isinstance(value, dict)
        or value.get("type") != "function"
        or not isinstance(value.get("name"), str)
    ):
        raise FieldError(place, f"'{place}' must be an object of type 'function' with a name")
    return {"type": "function", "function": {"name": value["name"]}}
