"""What requests may say of tools, and the form of texts that have to call one."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from halimede.backends.language.structure import Structure
from halimede.backends.language.tools.formats import ToolFormat, detect_format
from halimede.backends.language.tools.tool_use import ToolUse, read_tool_use
from halimede.core.errors import InvalidArgumentError

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "$defs": {"city": {"enum": ["Bonn", "Ulm"]}},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "time"}},
]
NAMES = frozenset({"weather", "time"})


def schema_of(found: tuple[ToolUse, Structure | None] | None) -> Any:
    assert found is not None
    assert found[1] is not None
    return json.loads(found[1].text)


@pytest.mark.parametrize(("tools", "choice"), [(None, None), ([], None), (TOOLS, "none")])
def test_without_tools_there_is_nothing_to_do(tools: Any, choice: Any) -> None:
    assert read_tool_use(tools, choice, None, None) is None


@pytest.mark.parametrize("choice", [None, "auto"])
def test_a_model_that_chooses_itself_writes_in_its_format(choice: Any) -> None:
    found = read_tool_use(TOOLS, choice, False, ToolFormat.HERMES)
    assert found == (ToolUse(NAMES, ToolFormat.HERMES, single=True), None)


def test_a_call_that_has_to_be_is_a_list_of_calls() -> None:
    schema = schema_of(read_tool_use(TOOLS, "required", None, None))
    jsonschema.validate(
        [{"name": "weather", "parameters": {"city": "Ulm"}}, {"name": "time", "parameters": {}}], schema
    )
    for wrong in (
        [],
        [{"name": "weather", "parameters": {"city": "Rome"}}],
        [{"name": "other", "parameters": {}}],
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
    assert schema_of(read_tool_use(TOOLS, "required", False, None))["maxItems"] == 1


def test_a_function_that_has_to_be_called_has_its_own_schema() -> None:
    found = read_tool_use(TOOLS, {"type": "function", "function": {"name": "weather"}}, None, None)
    assert schema_of(found) == CITY
    assert found is not None
    assert found[0].named == "weather"


def only(mode: str, *names: str) -> dict[str, Any]:
    """OpenAI's choice of some of the tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_only_some_of_the_tools_may_be_allowed() -> None:
    found = read_tool_use(TOOLS, only("auto", "time"), None, ToolFormat.HERMES)
    assert found == (ToolUse(frozenset({"time"}), ToolFormat.HERMES), None)
    required = schema_of(read_tool_use(TOOLS, only("required", "time"), None, None))
    jsonschema.validate([{"name": "time", "parameters": {}}], required)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"name": "weather", "parameters": {"city": "Ulm"}}], required)
    both = read_tool_use(TOOLS, only("required", "time", "weather"), None, None)
    assert both == read_tool_use(TOOLS, "required", None, None)


@pytest.mark.parametrize(
    "allowed",
    [
        None,
        {},
        {"mode": "auto", "tools": []},
        {"mode": "auto", "tools": {"a": 1}},
        {"mode": "auto", "tools": 3},
        {"mode": "auto", "tools": [3, {"function": 3}]},
        {"mode": ["auto"], "tools": [{"type": "function", "function": {"name": "time"}}]},
        {"mode": "auto", "tools": [{"type": "function", "function": {"name": "other"}}]},
        {"mode": "auto", "tools": [{"type": "function", "function": {"name": ["time"]}}]},
        {"mode": "none", "tools": [{"type": "function", "function": {"name": "time"}}]},
    ],
)
def test_allowed_tools_are_among_the_tools(allowed: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'tool_choice' of type 'allowed_tools' must have a mode"):
        read_tool_use(TOOLS, {"type": "allowed_tools", "allowed_tools": allowed}, None, ToolFormat.HERMES)


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "told"),
    [
        ({}, None, None, None),
        ({"a": 1}, None, None, "'tools' must be a list"),
        ([{"type": "web"}], None, None, "'tools[0]' must be an object of type 'function'"),
        ([{"type": "function", "function": {"name": "a", "parameters": 3}}], None, None,
         "'tools[0].function.parameters' must be a JSON schema"),
        (TOOLS, "maybe", None, "'tool_choice' must be none, auto, required, or name one of the functions time"),
        (TOOLS, {"function": {"name": "b"}}, None, "name one of the functions time, weather"),
        (TOOLS, "required", 3, "'parallel_tool_calls' must be true or false, got 3"),
        (TOOLS, "auto", None, "parameter 'tool_call_parser' of the model to one of hermes, llama3_json, mistral"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tools: Any, choice: Any, parallel: Any, told: str | None) -> None:
    if told is None:
        assert read_tool_use(tools, choice, parallel, None) is None
        return
    with pytest.raises(InvalidArgumentError) as caught:
        read_tool_use(tools, choice, parallel, None)
    assert told in caught.value.message


def test_definitions_that_differ_are_refused() -> None:
    other = {**CITY, "$defs": {"city": {"type": "string"}}}
    tools = [*TOOLS, {"type": "function", "function": {"name": "map", "parameters": other}}]
    with pytest.raises(
        InvalidArgumentError, match="the definition 'city' in the parameters of 'map' differs"
    ):
        read_tool_use(tools, "required", None, None)


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("{% for tool in tools %}<tool_call>", ToolFormat.HERMES),
        ("[TOOL_CALLS]{{ tool_calls }}", ToolFormat.MISTRAL),
        ('Environment: ipython ... "parameters": ', ToolFormat.LLAMA3_JSON),
        ("<|python_tag|>", ToolFormat.LLAMA3_JSON),
        ("{{ messages }}", None),
    ],
)
def test_the_chat_template_tells_the_format(tmp_path: Path, template: str, found: ToolFormat | None) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert detect_format(tmp_path) is found
    several = [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": template}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert detect_format(tmp_path) is found
    (tmp_path / "chat_template.jinja").write_text(template)
    assert detect_format(tmp_path / "1", tmp_path) is found


def test_without_a_template_nothing_is_told(tmp_path: Path) -> None:
    assert detect_format(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InvalidArgumentError, match="cannot read"):
        detect_format(tmp_path)
