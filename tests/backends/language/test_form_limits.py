"""Forms of texts that compilers would take too long for are refused before they get them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.backends.language.form_limits import (
    MAX_CHARACTERS,
    MAX_NESTED,
    MAX_PARTS,
    MAX_RULES,
    check_size,
    parts_of,
)
from halimede.backends.language.schemas import MAX_NESTING
from halimede.backends.language.structure import read_response_format, read_structure
from halimede.core.errors import InvalidArgumentError

TOO_MANY = (
    "with its repetitions it has more than 100000 parts, or more than 10000 in repetitions within each other"
)


def nested(levels: int) -> dict[str, Any]:
    """A schema of so many levels."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range((levels - 1) // 2):
        schema = {"properties": {"a": schema}}
    return schema


def rules(count: int) -> str:
    return "\n".join(f'r{number} ::= "a"' for number in range(count))


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"regex": "a" * (MAX_CHARACTERS + 1)}, "it has 131073 characters, and at most 131072 are allowed"),
        ({"choice": ["a" * MAX_CHARACTERS]}, "and at most 131072 are allowed"),
        ({"regex": "a{100001}"}, TOO_MANY),
        ({"regex": "(((a{500}){500}){500}){500}"}, TOO_MANY),
        ({"regex": "((a|[b-z]{2,101}){100}){2}"}, TOO_MANY),
        ({"regex": "(?:x(a{100}b)){100,}"}, TOO_MANY),
        ({"grammar": rules(MAX_RULES + 1)}, "it has more than 1000 rules"),
        ({"grammar": 'root ::= ("ab" [c]{100}){101}'}, TOO_MANY),
        ({"json": {"type": "string", "maxLength": 100_001}}, TOO_MANY),
        ({"json": {"properties": {f"p{n}": {"minLength": 20_000} for n in range(6)}}}, TOO_MANY),
        ({"json": {"items": {"pattern": "((a{300}){300}){300}"}, "maxItems": 5}}, TOO_MANY),
        ({"json": {"minItems": 1e308}}, TOO_MANY),
        ({"json": {"enum": list(range(MAX_PARTS + 1))}}, "characters, and at most"),
        ({"json": nested(MAX_NESTING + 3)}, "it is nested more than 64 levels deep"),
    ],
)  # fmt: skip
def test_what_is_too_large_is_refused_with_the_limit(form: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_size(read_structure("structured_outputs", form))
    [kind] = form
    assert caught.value.message.startswith(f"'structured_outputs.{kind}' cannot be used: ")
    assert told in caught.value.message


@pytest.mark.parametrize(
    "form",
    [
        {"regex": "[a-z]{1,100000}"},
        {"regex": "(ab{99}){100}"},
        {"regex": r"\(\{500\}(\[{500}){20}"},
        {"regex": "{99999999}[{999999}]"},
        {"choice": ["a"] * 1000},
        {"grammar": rules(MAX_RULES)},
        {"grammar": 'root ::= "({500}{500}" [)]{500}'},
        {"json": nested(MAX_NESTING - 1)},
        {"json": {"properties": {f"p{n}": {"type": "string", "maxLength": 1000} for n in range(90)}}},
        {"json": {"type": "array", "maxItems": 16, "items": {"type": "string", "maxLength": 50_000}}},
        {"json": "{"},
    ],
)
def test_forms_that_people_use_are_not(form: dict[str, Any]) -> None:
    structure = read_structure("structured_outputs", form)
    check_size(structure)  # raises nothing
    assert structure.text


def test_a_strict_schema_is_not_walked_through_if_it_is_nested_too_deeply() -> None:
    schema = nested(2000)
    with pytest.raises(InvalidArgumentError, match="schema' is nested more than 64 levels deep"):
        read_response_format({"type": "json_schema", "json_schema": {"schema": schema, "strict": True}})


@pytest.mark.parametrize(
    ("regex", "parts"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("(ab){3}c", 7),
        ("a{2,5}", 5),
        ("[abc]{2}", 2),
        (r"\d{4}", 4),
        ("a{0}b", 2),
    ],
)
def test_parts_are_counted_as_if_repetitions_were_written_out(regex: str, parts: int) -> None:
    assert parts_of(regex) == parts


@given(st.text('ab(){}[]|*+?,19\\" \n', max_size=60), st.booleans())
def test_any_text_is_counted_or_refused(text: str, quotes: bool) -> None:
    try:
        assert 0 <= parts_of(text, quotes=quotes) <= (MAX_PARTS + MAX_NESTED) * (len(text) + 1)
    except Exception as error:
        assert type(error).__name__ == "_TooLargeError"  # noqa: PT017 - it is not public
