"""What requests may say of the form of a text."""

from typing import Any

import pytest

from halimede.backends.language.sampling import Sampling, read_sampling
from halimede.backends.language.structure import (
    Structure,
    StructureKind,
    read_response_format,
    read_structure,
)
from halimede.core.errors import InvalidArgumentError


def test_the_response_format_of_openai() -> None:
    assert read_response_format(None) is None
    assert read_response_format({"type": "text"}) is None
    assert read_response_format({"type": "json_object"}) == Structure(
        StructureKind.JSON_SCHEMA, '{"type":"object"}', "response_format"
    )
    described = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}}
    assert read_response_format(described) == Structure(
        StructureKind.JSON_SCHEMA, '{"type":"null"}', "response_format.json_schema.schema"
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("json", "'response_format.type' must be text, json_object or json_schema, got None"),
        ({"type": "xml"}, "'response_format.type' must be text, json_object or json_schema, got 'xml'"),
        ({"type": "regex", "value": {}}, "'response_format.value' must be a regular expression, got {}"),
        ({"type": "json", "value": "{}"}, "'response_format.value' must be a JSON schema, got '{}'"),
        ({"type": "json_schema"}, "'response_format.json_schema.schema' must be a JSON schema, got None"),
        (
            {"type": "json_schema", "json_schema": {"schema": {}}, "strict": True},
            "'response_format.strict' is not supported in a format of type 'json_schema'",
        ),
        (
            {"type": "json_object", "value": {}, "schema": {}},
            "'response_format.schema' is not supported in a format of type 'json_object'",
        ),
        (
            {"type": "json_object", "json_schema": {"schema": {}}},
            "'response_format.json_schema' is not supported in a format of type 'json_object'",
        ),
        (
            {"type": "regex", "value": "a", "schema": {}},
            "'response_format.schema' is not supported in a format of type 'regex'",
        ),
    ],
)
def test_another_response_format_is_refused(value: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_response_format(value)
    assert caught.value.message == told


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ({"type": "json_object", "value": {"type": "null"}}, StructureKind.JSON_SCHEMA, '{"type":"null"}'),
        ({"type": "json", "value": {"type": "null"}}, StructureKind.JSON_SCHEMA, '{"type":"null"}'),
        ({"type": "json_schema", "value": {"name": "n", "schema": {}}}, StructureKind.JSON_SCHEMA, "{}"),
        ({"type": "regex", "value": "a+"}, StructureKind.REGEX, "a+"),
    ],
)
def test_the_response_formats_of_tgi(value: Any, kind: StructureKind, text: str) -> None:
    found = read_response_format(value)
    assert found is not None
    assert (found.kind, found.text, found.field) == (kind, text, "response_format.value")


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_the_schema_may_stand_beside_the_type(kind: str) -> None:
    found = read_response_format({"type": kind, "schema": {"type": "null"}, "json_schema": None})
    assert found == Structure(StructureKind.JSON_SCHEMA, '{"type":"null"}', "response_format.schema")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ({"json": {"type": "null"}}, StructureKind.JSON_SCHEMA, '{"type":"null"}'),
        ({"json": '{"type":"null"}', "regex": None}, StructureKind.JSON_SCHEMA, '{"type":"null"}'),
        ({"json_object": True}, StructureKind.JSON_SCHEMA, '{"type":"object"}'),
        ('{"regex": "a+"}', StructureKind.REGEX, "a+"),
        ({"choice": ["a", "b"]}, StructureKind.CHOICE, '["a","b"]'),
        ({"grammar": 'root ::= "a"'}, StructureKind.GRAMMAR, 'root ::= "a"'),
    ],
)
def test_the_forms_of_vllm(value: Any, kind: StructureKind, text: str) -> None:
    found = read_structure("guided_decoding", value)
    assert (found.kind, found.text) == (kind, text)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "'guided_decoding' must be an object with one of json, json_object, regex, grammar and choice"),
        ({"json": {}, "regex": "a"}, "must be an object with one of"),
        ({"xml": "a"}, "must be an object with one of"),
        ("{", "'guided_decoding' is not JSON"),
        ({"regex": 3}, "'guided_decoding.regex' must be a string, got 3"),
        ({"choice": []}, "'guided_decoding.choice' must be a list of strings that is not empty"),
    ],
)
def test_another_form_is_refused(value: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_structure("guided_decoding", value)
    assert told in caught.value.message


def test_sampling_parameters_may_have_a_form() -> None:
    found = read_sampling('{"structured_outputs": {"regex": "a+"}}', Sampling()).structure
    assert found == Structure(StructureKind.REGEX, "a+", "structured_outputs.regex")
    assert read_sampling('{"guided_decoding": null}', Sampling()).structure is None
