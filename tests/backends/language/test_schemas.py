"""Schemas with `strict`: models invent no members."""

from typing import Any

import pytest

from halimede.backends.language.schemas import closed
from halimede.backends.language.structure import read_response_format
from halimede.backends.language.tools.tool_use import read_tool_use
from halimede.core.errors import InvalidArgumentError

A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (A, CLOSED),
        ({"properties": {}}, {"properties": {}, "additionalProperties": False}),
        ({"type": ["object", "null"]}, {"type": ["object", "null"], "additionalProperties": False}),
        ({**A, "additionalProperties": True}, {**A, "additionalProperties": True}),
        ({**A, "additionalProperties": A}, {**A, "additionalProperties": CLOSED}),
        ({**A, "unevaluatedProperties": True}, {**A, "unevaluatedProperties": True}),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED}),
        ({"items": [A, True], "prefixItems": [A]}, {"items": [CLOSED, True], "prefixItems": [CLOSED]}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"allOf": [A]}, {"allOf": [CLOSED]}),
        ({"$ref": "#/$defs/x", "$defs": {"x": A}}, {"$ref": "#/$defs/x", "$defs": {"x": CLOSED}}),
        (
            {**A, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {**CLOSED, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ),
        (
            {"properties": {"properties": {"properties": {"type": A}}}},
            {
                "properties": {"properties": {"properties": {"type": CLOSED}, "additionalProperties": False}},
                "additionalProperties": False,
            },
        ),
        ({"enum": [{"properties": 1}], "default": A}, {"enum": [{"properties": 1}], "default": A}),
    ],
)
def test_objects_are_closed_wherever_they_are(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert closed(schema, "f") == wanted


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, {"properties": {"b": {}}}]},
        {**A, "anyOf": [{"properties": {"b": {}}}]},
        {**A, "$ref": "#/$defs/x", "$defs": {"x": A}},
        {"items": {**A, "if": {"properties": {"a": {"const": "x"}}}}},
    ],
)
def test_objects_that_are_described_in_several_places_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="'f': with 'strict': true, all members of an object"):
        closed(schema, "f")


@pytest.mark.parametrize(("strict", "wanted"), [(True, CLOSED), (False, A), (None, A)])
def test_formats_and_tools_are_strict_if_they_say_so(strict: bool | None, wanted: dict[str, Any]) -> None:
    described = {"name": "n", "schema": A, "strict": strict}
    for member in ("json_schema", "value"):
        form = read_response_format({"type": "json_schema", member: described})
        assert form is not None
        assert form.schema == wanted
    tools = [{"type": "function", "function": {"name": "f", "parameters": A, "strict": strict}}]
    use = read_tool_use(tools, {"type": "function", "function": {"name": "f"}}, None, None)
    assert use is not None
    assert use[1] is not None
    assert use[1].schema == wanted


@pytest.mark.parametrize("strict", ["yes", 1])
def test_strict_is_true_or_false(strict: Any) -> None:
    described = {"name": "n", "schema": A, "strict": strict}
    with pytest.raises(
        InvalidArgumentError, match=r"'response_format.json_schema.strict' must be true or false"
    ):
        read_response_format({"type": "json_schema", "json_schema": described})
    tools = [{"type": "function", "function": {"name": "f", "parameters": A, "strict": strict}}]
    with pytest.raises(InvalidArgumentError, match=r"'tools\[0\].function.strict' must be true or false"):
        read_tool_use(tools, "required", None, None)
