"""Tools and their calls as chat templates expect them."""

from collections.abc import Mapping
from typing import Any

import orjson


def tools_for_template(document: Mapping[str, Any]) -> list[Any] | None:
    """The tools that the template tells the model of; None if there are none."""
    tools = document.get("tools")
    return tools if tools and document.get("tool_choice") != "none" else None


def with_read_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, in which arguments of calls are objects: OpenAI's API has them as text, and templates do not."""
    return [
        {**message, "tool_calls": [_read(call) for call in message["tool_calls"]]}
        if isinstance(message.get("tool_calls"), list)
        else message
        for message in messages
    ]


def _read(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
