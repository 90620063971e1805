"""Answers as flat tables: one line for each value, so that two of them are compared value by value."""

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

Value = str | int | float | bool | None
Answer = dict[str, Value]


def flatten(value: Any, path: str) -> Iterator[tuple[str, Value]]:
    """Each value inside a JSON document with its path, such as `body.outputs[0].data[3]`; an empty list is one too."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from flatten(value[key], f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]")
    elif isinstance(value, dict | list):
        yield path, "{}" if isinstance(value, dict) else "[]"
    else:
        yield path, value


def document(body: bytes, path: str) -> Answer:
    """A body as a table: that of its JSON, or its text in one line."""
    try:
        return dict(flatten(json.loads(body), path))
    except ValueError:
        return {path: body.decode(errors="backslashreplace")}


def members(message: Message) -> dict[str, Any]:
    """What a protobuf message holds, as JSON would have it, but with integers as numbers and bytes in hexadecimal."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = {str(key): plain(value[key]) for key in value}
        elif isinstance(value, str | bytes | int | float | Message):
            found[field.name] = plain(value)
        else:
            found[field.name] = [plain(one) for one in value]
    return found


def plain(value: Any) -> Any:
    """A value of a message as JSON would have it."""
    if isinstance(value, Message):
        return members(value)
    return value.hex() if isinstance(value, bytes) else value
