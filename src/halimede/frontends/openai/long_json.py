"""The JSON of replies with many log probabilities, made in steps, so that other requests are answered in between."""

from collections.abc import Generator, Iterator
from typing import Any, Final

import orjson

from halimede.core.tensors import Buffer

ITEMS: Final = 32
"""A longer list is encoded in slices of so many items."""

STEP_BYTES: Final = 65_536
"""JSON of a step, or a little more: less than a millisecond of work."""

Steps = Generator[None, None, list[Buffer]]
"""What makes the parts of a document."""


def encode(document: dict[str, Any]) -> bytes | Steps:
    """The JSON of a document; of one with long lists, what makes it in steps."""
    return steps(document) if _is_long(document) else orjson.dumps(document)


def has_many(logprobs: Any) -> bool:
    """Whether log probabilities, in the format of chats or completions, are those of many tokens."""
    if not isinstance(logprobs, dict):
        return False
    return any(isinstance(value, list) and len(value) > ITEMS for value in logprobs.values())


def steps(document: dict[str, Any]) -> Steps:
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
