"""What a request says of tools: which there are, and whether the model has to call them."""

from dataclasses import dataclass
from typing import Any, Final

from halimede.backends.language.schemas import closed
from halimede.backends.language.structure import Structure, read_strict, schema_structure
from halimede.backends.language.tools.formats import ToolFormat
from halimede.core.errors import InvalidArgumentError

PARSER = "tool_call_parser"
"""The parameter of a configuration that names the format."""

_ALLOWED: Final = "allowed_tools"

_MAX_CALLS: Final = 16
"""So many calls a model makes at the most if it has to make some."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How a text may call tools.

    Attributes:
        names: the tools that there are.
        format: how the model writes calls if it chooses itself; None if it has to call a tool.
        named: the tool that it has to call, "" for any.
        single: it makes one call at the most.
    """

    names: frozenset[str]
    format: ToolFormat | None
    named: str = ""
    single: bool = False


def read_tool_use(
    tools: Any, choice: Any, parallel: Any, tool_format: ToolFormat | None
) -> tuple[ToolUse, Structure | None] | None:
    """How a text may call tools, and the form that it has to have because of that; None without tools.

    Args:
        tools: OpenAI's list of tools, None without the field.
        choice: `tool_choice`, likewise.
        parallel: `parallel_tool_calls`, likewise.
        tool_format: how the model writes calls, None if that is not known.

    Raises:
        InvalidArgumentError: a field has a value that it cannot have.
    """
    if not tools or choice == "none":
        return None
    schemas = _schemas(tools)
    if isinstance(choice, dict) and choice.get("type") == _ALLOWED:
        choice, schemas = _allowed(choice.get(_ALLOWED), schemas)
    names = frozenset(schemas)
    if parallel not in (None, True, False):
        raise InvalidArgumentError(f"'parallel_tool_calls' must be true or false, got {parallel!r:.64}")
    single = parallel is False
    if choice in (None, "auto"):
        if tool_format is None:
            known = ", ".join(each.value for each in ToolFormat)
            msg = (
                f"the chat template of this model does not show how it writes calls of tools: set the parameter "
                f"'{PARSER}' of the model to one of {known}, or set 'tool_choice' to what has to be called"
            )
            raise InvalidArgumentError(msg)
        return ToolUse(names, tool_format, single=single), None
    if choice == "required":
        calls = [_call_schema(name, schema) for name, schema in schemas.items()]
        array = {
            "type": "array",
            "minItems": 1,
            "maxItems": 1 if single else _MAX_CALLS,
            "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
        }
        return ToolUse(names, None, single=single), schema_structure(_lifted(array, schemas), "tools")
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names:
        known = ", ".join(sorted(names))
        msg = (
            f"'tool_choice' must be none, auto, required, or name one of the functions {known}, "
            f"got {choice!r:.128}"
        )
        raise InvalidArgumentError(msg)
    return ToolUse(names, None, name, single=True), schema_structure(schemas[name], f"parameters of '{name}'")


def _schemas(tools: Any) -> dict[str, dict[str, Any]]:
    """Name → the schema of the parameters."""
    if not isinstance(tools, list):
        raise InvalidArgumentError("'tools' must be a list")
    schemas = {}
    for number, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            msg = f"'tools[{number}]' must be an object of type 'function' with a function that has a name"
            raise InvalidArgumentError(msg)
        assert isinstance(function, dict)
        schema = function.get("parameters")
        if schema is None:
            schema = {"type": "object", "properties": {}, "additionalProperties": False}
        if not isinstance(schema, dict):
            raise InvalidArgumentError(f"'tools[{number}].function.parameters' must be a JSON schema")
        if read_strict(function, f"tools[{number}].function"):
            schema = closed(schema, f"tools[{number}].function.parameters")
        schemas[name] = schema
    return schemas


def _allowed(value: Any, schemas: dict[str, dict[str, Any]]) -> tuple[str, dict[str, dict[str, Any]]]:
    """The mode, auto or required, and the tools that OpenAI's `allowed_tools` leaves.

    Raises:
        InvalidArgumentError: it is something else.
    """
    listed = value.get("tools") if isinstance(value, dict) else None
    mode = value.get("mode") if isinstance(value, dict) else None
    tools = listed if isinstance(listed, list) else ()
    functions = [each.get("function") if isinstance(each, dict) else None for each in tools]
    names = [each.get("name") if isinstance(each, dict) else None for each in functions]
    if (
        mode not in ("auto", "required")
        or not names
        or not all(isinstance(name, str) and name in schemas for name in names)
    ):
        msg = (
            f"'tool_choice' of type '{_ALLOWED}' must have a mode, auto or required, and tools among the functions "
            f"{', '.join(sorted(schemas))}, got {value!r:.128}"
        )
        raise InvalidArgumentError(msg)
    return mode, {name: schema for name, schema in schemas.items() if name in names}


def _call_schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in schema.items() if key not in ("$defs", "definitions", "$schema")}
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "parameters": own},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _lifted(array: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The schema with the definitions of all parameters, to which references point from the top."""
    for key in ("$defs", "definitions"):
        definitions: dict[str, Any] = {}
        for name, schema in schemas.items():
            for each, definition in schema.get(key, {}).items():
                if definitions.setdefault(each, definition) != definition:
                    msg = f"'tools': the definition '{each}' in the parameters of '{name}' differs from another tool's"
                    raise InvalidArgumentError(msg)
        if definitions:
            array[key] = definitions
    return array
