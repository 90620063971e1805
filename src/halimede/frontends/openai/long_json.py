"""JSON with many log probabilities, read and made in steps, so that other requests are answered in between.

What is read of a long text is not made into objects, which would take the collector of garbage long to look at: an
object or list in a list stays JSON, as an `orjson.Fragment`, which is checked.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Any, Final

import orjson

from halimede.core.tensors import Buffer

ITEMS: Final = 32
"""A longer list is encoded in slices of so many items."""

STEP_BYTES: Final = 65_536
"""JSON of a step, or a little more: less than a millisecond of work."""

READ_BYTES: Final = 65_536
"""Longer JSON is read in steps."""

_READ_STEP_BYTES: Final = 16_384
"""JSON of a step of reading, or a little more."""

_DEPTH: Final = 3
"""Objects in objects so deep are read member by member."""

Steps = Generator[None, None, list[Buffer]]
"""What makes the parts of a document."""

Reading = Generator[None, None, Any]
"""What reads a document."""


def encode(document: Any) -> bytes | Steps:
    """The JSON of a document; of one with long lists, what makes it in steps."""
    return steps(document) if _is_long(document) else orjson.dumps(document)


def has_many(logprobs: Any) -> bool:
    """Whether log probabilities, in the format of chats or completions, are those of many tokens."""
    if not isinstance(logprobs, dict):
        return False
    return any(isinstance(value, list) and len(value) > ITEMS for value in logprobs.values())


def steps(document: Any) -> Steps:
    """Makes the JSON of a document."""
    parts: list[Buffer] = []
    size = 0
    for piece in _pieces(document):
        parts.append(piece)
        size += len(piece)
        if size >= STEP_BYTES:
            size = 0
            yield
    return parts


def _is_long(value: Any) -> bool:
    """Whether there is a long list in it."""
    if isinstance(value, dict):
        return any(map(_is_long, value.values()))
    return isinstance(value, list) and (len(value) > ITEMS or any(map(_is_long, value)))


def _pieces(value: Any) -> Iterator[bytes]:
    """The JSON of a value, of which no piece has more than a slice of a list."""
    if not _is_long(value):
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        before = b"{"
        for name, member in value.items():
            yield b"%b%b:" % (before, orjson.dumps(name))
            yield from _pieces(member)
            before = b","
        yield b"}"
    else:
        before = b"["
        for start in range(0, len(value), ITEMS):
            items = value[start : start + ITEMS]
            if not any(map(_is_long, items)):
                yield before
                yield orjson.dumps(items)[1:-1]
                before = b","
                continue
            for item in items:
                yield before
                yield from _pieces(item)
                before = b","
        yield b"]"


def read(data: bytes) -> Reading:
    """Reads JSON. Objects and lists in lists stay JSON.

    Raises:
        ValueError: it is none.
    """
    text = data.decode()
    value, at = yield from _value(text, _skip(text, 0), _DEPTH)
    if _skip(text, at) != len(text):
        raise ValueError(f"there is more than one value, at character {at}")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_scan: Final = json.JSONDecoder(parse_constant=_refuse).raw_decode
_space: Final = re.compile(r"[ \t\n\r]*").match


def _skip(text: str, at: int) -> int:
    """Where the next character is that is no space."""
    found = _space(text, at)
    return at if found is None else found.end()


def _next(text: str, at: int, mark: str, end: str = "") -> tuple[int, bool]:
    """The place behind a mark, or behind an end; whether it was the end."""
    at = _skip(text, at)
    if text[at : at + 1] not in (mark, end) or at == len(text):
        raise ValueError(f"'{mark}' is expected at character {at}")
    return _skip(text, at + 1), text[at] == end


def _value(text: str, at: int, depth: int) -> Generator[None, None, tuple[Any, int]]:
    first = text[at : at + 1]
    if first == "{" and depth:
        return (yield from _object(text, at, depth - 1))
    if first == "[":
        return (yield from _list(text, at))
    return _scanned(text, at)


def _scanned(text: str, at: int) -> tuple[Any, int]:
    """A value, and the place behind it; an object or list stays JSON."""
    value, end = _scan(text, at)
    try:
        encoded = orjson.dumps(value)
    except orjson.JSONEncodeError as error:  # half a character, or a number that is too large
        raise ValueError(str(error)) from None
    return orjson.Fragment(encoded) if isinstance(value, dict | list) else value, end


def _object(text: str, at: int, depth: int) -> Generator[None, None, tuple[dict[str, Any], int]]:
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    ended = False
    while not ended:
        name, at = _scanned(text, at)
        if not isinstance(name, str):
            raise ValueError(f"a member without a name ends at character {at}")
        at, _ = _next(text, at, ":")
        found[name], at = yield from _value(text, at, depth)
        at, ended = _next(text, at, ",", "}")
    return found, at


def _list(text: str, at: int) -> Generator[None, None, tuple[list[Any], int]]:
    found: list[Any] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    ended, step = False, at + _READ_STEP_BYTES
    while not ended:
        value, end = _scanned(text, at)
        found.append(value)
        at, ended = _next(text, end, ",", "]")
        if at > step:
            step = at + _READ_STEP_BYTES
            yield
    return found, at


def object_of(value: Any) -> Any:
    """An item of a list, also if it stayed JSON."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, orjson.Fragment) else value
