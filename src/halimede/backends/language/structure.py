"""The form that a text is to have: a JSON schema, a regular expression, a grammar, or one of several texts."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from halimede.backends.language.schemas import closed
from halimede.core.errors import InvalidArgumentError

FIELDS: Final = ("structured_outputs", "guided_decoding")
"""What vLLM calls the object in its sampling parameters, and what it called it before."""

_WITH_VALUE: Final = ("json", "json_object", "json_schema", "regex")
"""Types of formats that huggingface_hub and TGI describe in the member `value`, and others in `schema`."""

_ANY_OBJECT: Final = '{"type":"object"}'


class StructureKind(Enum):
    """What describes the form; the values are vLLM's names."""

    JSON_SCHEMA = "json"
    REGEX = "regex"
    GRAMMAR = "grammar"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Structure:
    """The form of a text.

    Attributes:
        kind: what describes it.
        text: a JSON schema, a regular expression, a grammar in EBNF, or a JSON list of texts.
        field: what a client calls it, for errors.
    """

    kind: StructureKind
    text: str
    field: str

    @property
    def schema(self) -> Any:
        """The JSON schema."""
        return orjson.loads(self.text)

    @property
    def choices(self) -> list[str]:
        """The texts of a choice."""
        texts: list[str] = orjson.loads(self.text)
        return texts

    def refused(self, problem: str) -> InvalidArgumentError:
        """The error that says why no text can have this form."""
        return InvalidArgumentError(f"'{self.field}' cannot be used: {problem}")


def schema_structure(schema: Any, field: str) -> Structure:
    """The form of JSON by a schema."""
    return Structure(StructureKind.JSON_SCHEMA, orjson.dumps(schema).decode(), field)


def read_response_format(value: Any) -> Structure | None:
    """What OpenAI's field asks for, None for any text.

    Raises:
        InvalidArgumentError: it is something else.
    """
    field = "response_format"
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    described_in = _described_in(kind, value, field)
    if described_in in ("value", "schema"):
        return _read_value(str(kind), value[described_in], f"{field}.{described_in}")
    if kind == "json_object":
        return Structure(StructureKind.JSON_SCHEMA, _ANY_OBJECT, field)
    if kind != "json_schema":
        msg = f"'{field}.type' must be text, json_object or json_schema, got {kind!r:.64}"
        raise InvalidArgumentError(msg)
    described = value.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise InvalidArgumentError(f"'{field}.json_schema.schema' must be a JSON schema, got {schema!r:.64}")
    place = f"{field}.json_schema.schema"
    if read_strict(described, f"{field}.json_schema"):
        schema = closed(schema, place)
    return schema_structure(schema, place)


def _described_in(kind: Any, value: Any, field: str) -> str:
    """The member of a format that describes it; "" if no one does.

    Raises:
        InvalidArgumentError: it has other members.
    """
    if kind not in _WITH_VALUE:
        return ""
    names = [name for name in value if name != "type" and value[name] is not None]
    known = {"json_schema": ("json_schema", "value", "schema"), "regex": ("value",)}.get(
        kind, ("value", "schema")
    )
    others = [name for name in names if name not in known] or names[1:]
    if others:
        raise InvalidArgumentError(f"'{field}.{others[0]:.64}' is not supported in a format of type '{kind}'")
    return names[0] if names else ""


def read_strict(described: Any, field: str) -> bool:
    """Whether objects may have no members but those that their schema lists.

    Args:
        described: what has the member `strict`.
        field: where that stands in the request.

    Raises:
        InvalidArgumentError: it is something else than a truth value.
    """
    strict = described.get("strict")
    if not isinstance(strict, bool | None):
        raise InvalidArgumentError(f"'{field}.strict' must be true or false, got {strict!r:.64}")
    return bool(strict)


def _read_value(kind: str, value: Any, field: str) -> Structure:
    """The form in `value`, as huggingface_hub and TGI have it."""
    if isinstance(value, dict) and isinstance(value.get("schema"), dict) and kind == "json_schema":
        strict = read_strict(value, field)
        value = value["schema"]  # beside a name
        value = closed(value, f"{field}.schema") if strict else value
    if isinstance(value, str) if kind == "regex" else isinstance(value, dict):
        return (
            Structure(StructureKind.REGEX, value, field)
            if kind == "regex"
            else schema_structure(value, field)
        )
    wanted = "a regular expression" if kind == "regex" else "a JSON schema"
    raise InvalidArgumentError(f"'{field}' must be {wanted}, got {value!r:.64}")


def read_structure(field: str, value: Any) -> Structure:
    """What vLLM's object asks for, which clients may send as a string of JSON.

    Raises:
        InvalidArgumentError: it is something else.
    """
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise InvalidArgumentError(f"'{field}' is not JSON: {error}") from None
    given = {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else {}
    known = {kind.value: kind for kind in StructureKind}
    if given.pop("json_object", False):
        given.setdefault("json", _ANY_OBJECT)
    if len(given) != 1 or not known.keys() >= given.keys():
        msg = f"'{field}' must be an object with one of json, json_object, regex, grammar and choice, got {value!r:.64}"
        raise InvalidArgumentError(msg)
    [(name, described)] = given.items()
    kind = known[name]
    if kind is StructureKind.CHOICE:
        if not (
            isinstance(described, list) and described and all(isinstance(each, str) for each in described)
        ):
            msg = f"'{field}.choice' must be a list of strings that is not empty, got {described!r:.64}"
            raise InvalidArgumentError(msg)
    elif kind is StructureKind.JSON_SCHEMA and isinstance(described, dict):
        pass
    elif not isinstance(described, str):
        raise InvalidArgumentError(f"'{field}.{name}' must be a string, got {described!r:.64}")
    text = described if isinstance(described, str) else orjson.dumps(described).decode()
    return Structure(kind, text, f"{field}.{name}")
