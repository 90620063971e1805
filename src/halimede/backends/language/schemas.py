"""JSON schemas as clients send them, changed to what they mean."""

from collections.abc import Callable
from typing import Any, Final

from halimede.core.errors import InvalidArgumentError

MAX_NESTING: Final = 64
"""So many levels deep a schema may be."""

_SINGLE: Final = (
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_COMBINED: Final = ("allOf", "anyOf", "oneOf", "$ref", "if", "then", "else", "not", "dependentSchemas")
_OPEN: Final = ("additionalProperties", "unevaluatedProperties")
"""What says whether an object may have further members."""


def closed(schema: dict[str, Any], field: str) -> dict[str, Any]:
    """The schema with ``"strict": true``: objects have no members but those that it lists, unless it says so.

    Args:
        schema: as the client sent it.
        field: where it stands in the request.

    Raises:
        InvalidArgumentError: it describes the members of one object in several places, or is nested too deeply.
    """
    if nesting_of(schema) > MAX_NESTING:
        raise InvalidArgumentError(f"'{field}' is nested more than {MAX_NESTING} levels deep")

    def close(each: dict[str, Any]) -> dict[str, Any]:
        kinds = each.get("type")
        is_object = (
            "properties" in each or kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
        )
        several = [key for key in _COMBINED if key in each and _describes_members(each[key])]
        if isinstance(each.get("allOf"), list) and len(each["allOf"]) > 1 and "allOf" in several:
            is_object = True  # of which each part describes some members
        if not is_object or any(key in each for key in _OPEN):
            return each
        if several:
            msg = (
                f"'{field}': with 'strict': true, all members of an object have to be in its 'properties', but "
                f"'{several[0]}' describes further ones"
            )
            raise InvalidArgumentError(msg)
        return {**each, "additionalProperties": False}

    return changed(schema, close)


def nesting_of(value: Any) -> int:
    """How many lists and objects are in each other, at most one more than a schema may have."""
    level = [value]
    for depth in range(MAX_NESTING + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return depth
    return MAX_NESTING + 1


def _describes_members(value: Any) -> bool:
    """Whether what stands at a keyword says which members an object has."""
    if isinstance(value, list):
        return any(map(_describes_members, value))
    if isinstance(value, dict):
        return any(key in value for key in ("properties", "patternProperties", "$ref", *_OPEN))
    return isinstance(value, str)  # a reference


def changed(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The schema in which it and all schemas within it are changed, from the inside out."""
    copy = dict(schema)
    for key in _SINGLE:
        if isinstance(copy.get(key), dict):
            copy[key] = changed(copy[key], change)
    for key in _LISTS:
        if isinstance(copy.get(key), list):
            copy[key] = [changed(each, change) if isinstance(each, dict) else each for each in copy[key]]
    for key in _NAMED:
        if isinstance(copy.get(key), dict):
            copy[key] = {
                name: changed(each, change) if isinstance(each, dict) else each
                for name, each in copy[key].items()
            }
    return change(copy)
