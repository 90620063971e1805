"""How models write calls of tools; chosen by a parameter, or by the chat template."""

import json
from enum import Enum
from pathlib import Path
from typing import Any

from halimede.core.errors import InvalidArgumentError


class ToolFormat(Enum):
    """How a model writes calls, by vLLM's names."""

    HERMES = "hermes"
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, once for each call, perhaps after text."""
    LLAMA3_JSON = "llama3_json"
    """``{"name": …, "parameters": {…}}`` as the whole text; several are separated by semicolons."""
    MISTRAL = "mistral"
    """``[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`` or ``[TOOL_CALLS]NAME[ARGS]{…}``, perhaps after text."""


MARKS = {
    ToolFormat.HERMES: "<tool_call>",
    ToolFormat.LLAMA3_JSON: "<|python_tag|>",
    ToolFormat.MISTRAL: "[TOOL_CALLS]",
}
"""What a chat template has that tells the model to write calls in this way."""

_LLAMA = ('"parameters"', "ipython")
"""The same for Llama 3, whose templates do not all have the mark."""


def detect_format(*directories: Path) -> ToolFormat | None:
    """How the model writes calls, by the first chat template that these directories have; None if it does not tell."""
    for directory in directories:
        template = _template(directory)
        if template:
            for tool_format, mark in MARKS.items():
                if mark in template:
                    return tool_format
            return ToolFormat.LLAMA3_JSON if all(each in template for each in _LLAMA) else None
    return None


def _template(directory: Path) -> str:
    """The text of the chat template, "" without one."""
    try:
        return (directory / "chat_template.jinja").read_text("utf-8")
    except FileNotFoundError:
        pass
    path = directory / "tokenizer_config.json"
    try:
        document: Any = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"cannot read '{path}': {error}") from error
    source = document.get("chat_template") if isinstance(document, dict) else None
    if isinstance(source, list):  # several, by name
        source = "".join(str(each.get("template", "")) for each in source if isinstance(each, dict))
    return source if isinstance(source, str) else ""
