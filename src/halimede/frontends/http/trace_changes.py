"""The JSON of requests to `/v2/trace/setting` and `/v2/models/…/trace/setting`, and of their responses."""

from collections.abc import Sequence
from typing import Any

import orjson

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.trace_settings import FILE, LEVEL, NUMBERS


def read_trace_changes(document: Any) -> dict[str, Sequence[str] | None]:
    """The settings that a request names, for `trace_settings.change`; those that are null are to be taken back.

    Raises:
        InvalidArgumentError: a value is of another type than its setting.
    """
    if not isinstance(document, dict):
        return {}
    changes: dict[str, Sequence[str] | None] = {}
    if FILE in document:
        return {FILE: None}
    if LEVEL in document:
        levels = document[LEVEL]
        if levels is not None and not isinstance(levels, list):
            raise InvalidArgumentError("attempt to access JSON non-array as array")
        changes[LEVEL] = None if levels is None else [_text(level) for level in levels]
    for name in NUMBERS:
        if name in document:
            value = document[name]
            changes[name] = None if value is None else [_text(value)]
    return changes


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError("attempt to access JSON non-string as string")
    return value


def trace_document(members: Sequence[tuple[str, str | list[str]]]) -> bytes:
    """The settings as a JSON object; a name that comes more than once is there as often, as tritonserver has it."""
    return b"{%b}" % b",".join(orjson.dumps(name) + b":" + orjson.dumps(value) for name, value in members)
