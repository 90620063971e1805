"""JSON as clients write it: strict, or with the bare tokens NaN, Inf and Infinity."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import orjson

from halimede.codec.json_faults import find_fault
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Array, Buffer

MAX_NESTING: Final = 100

MAX_ARRAYS: Final = 4_194_304
"""Arrays and objects of a text with tensors."""

MAX_STRINGS: Final = 8_388_608
"""Strings of a text with tensors, names of members among them."""

MAX_OBJECTS: Final = 131_072
"""Objects of a text with tensors, and members of all objects together. Those of 4096 inputs, 4096 outputs and as many
parameters are fewer; each takes many times the memory of its text."""

MAX_DOCUMENT_VALUES: Final = 131_072
"""Arrays and objects of a text without tensors, and strings of it."""

MAX_DOCUMENT_ELEMENTS: Final = 1_048_576
"""Elements of arrays and members of objects of a text without tensors, all together."""

COUNTED_BYTES: Final = 262_144
"""Shorter texts are read in some milliseconds, whatever they consist of."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

# A string, in which nothing is a token, or a token. A string that does not end goes to the end of the text, so that the
# text is read once. No group with alternatives is possessive: before Python 3.11.5 that is faulty.
_STRING_OR_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([+\-]?)(NaN|Inf(?:inity)?)\b', re.DOTALL)


class NestingError(InvalidArgumentError):
    """The JSON is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})")


class TooManyValuesError(InvalidArgumentError):
    """The JSON has more values than it may."""

    def __init__(self, kind: str, most: int) -> None:
        super().__init__(f"the JSON of the request has more than the maximum of {most} {kind}")


def check_values(data: Buffer) -> None:
    """Refuse a text with tensors that has so many values that they take many times the memory of the text.

    Raises:
        TooManyValuesError: it has more arrays and objects, objects, members, or strings.
    """
    if len(data) > COUNTED_BYTES:
        _check_counts(data, MAX_ARRAYS, MAX_STRINGS, len(data), MAX_OBJECTS)


def _check_counts(data: Buffer, arrays: int, strings: int, elements: int, objects: int) -> None:
    """Refuse a text with more of something.

    Args:
        data: the text.
        arrays: how many arrays and objects it may have.
        strings: how many strings.
        elements: how many elements of arrays and members of objects.
        objects: how many objects, and members of objects.
    """
    text = np.frombuffer(data, np.uint8)
    quotes = text == ord('"')
    escaped = np.count_nonzero(
        quotes[1:] & (text[:-1] == ord("\\"))
    )  # or after a backslash that is escaped itself
    if np.count_nonzero(quotes) - escaped > 2 * strings:
        raise TooManyValuesError("strings", strings)
    counts = {each: _count(text, each) for each in "[{,:"}  # those in strings among them
    if not _excess(counts, arrays, elements, objects):
        return
    text = np.frombuffer(_STRING.sub(b"", bytes(data)), np.uint8)
    if excess := _excess({each: _count(text, each) for each in "[{,:"}, arrays, elements, objects):
        raise TooManyValuesError(*excess)


def _excess(counts: dict[str, int], arrays: int, elements: int, objects: int) -> tuple[str, int] | None:
    """Of what a text with so many of these characters has more than it may, and how many that is."""
    if counts["["] + counts["{"] > arrays:
        return "arrays and objects", arrays
    if counts[","] >= elements:
        return "elements and members", elements
    if counts["{"] > objects:
        return "objects", objects
    if counts[":"] > objects:
        return "members of objects", objects
    return None


def _count(text: Array, character: str) -> int:
    return int(np.count_nonzero(text == ord(character)))


def parse_json(data: Buffer) -> Any:
    """The value that the text spells, which may begin with a byte order mark.

    Nesting is limited by orjson, which finds its limit without recursion; nothing deeper reaches `json`.

    Raises:
        InvalidArgumentError: it is not JSON.
        NestingError: it is nested so deeply that no request can be.
        TooManyValuesError: as of `check_values`.
        MemoryError: there is not enough for it.
    """
    check_values(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        text = bytes(data)
        if not text.startswith(BOM_UTF8):
            return _parse_with_tokens(text, error)
    text = text.removeprefix(BOM_UTF8)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _parse_with_tokens(text, error)


def exact_integers(data: Buffer) -> Any:
    """What `parse_json` has read before, but with integers beyond 64 bits as integers, which it makes floats.

    Raises:
        InvalidArgumentError: an integer has thousands of digits.
        NestingError: as of `parse_json`.
    """
    text = bytes(data).removeprefix(BOM_UTF8)
    try:
        value = json.loads(text)
    except RecursionError:
        raise NestingError from None
    except ValueError as error:
        return _parse_with_tokens(text, error)
    _check_nesting(value)
    return value


def parse_document(data: Buffer) -> Any:
    """As `parse_json`, of a text without tensors, which has few values however long its strings are.

    Raises:
        InvalidArgumentError, NestingError: as of `parse_json`.
        TooManyValuesError: it has more than a few.
    """
    if len(data) > COUNTED_BYTES:
        _check_counts(
            data, MAX_DOCUMENT_VALUES, MAX_DOCUMENT_VALUES, MAX_DOCUMENT_ELEMENTS, MAX_DOCUMENT_ELEMENTS
        )
    return parse_json(data)


class Members(list[tuple[str, Any]]):
    """The members of an object in order, repeated names among them."""


def parse_members(data: Buffer) -> Any:
    """As `parse_json`, but each object becomes its `Members`.

    Raises:
        InvalidArgumentError, NestingError, TooManyValuesError: as of `parse_json`.
    """
    check_values(data)
    text = bytes(data).removeprefix(BOM_UTF8)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _parse_with_tokens(text, error, Members)
    _check_nesting(value)
    try:
        return json.loads(text, object_pairs_hook=Members)
    except RecursionError:
        raise NestingError from None
    except ValueError as error:  # an integer of thousands of digits
        raise _error(error, text) from None


def _parse_with_tokens(
    data: bytes, why: ValueError, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    strict: list[bytes] = []
    tokens: list[bytes] = []
    position = 0
    if b"NaN" in data or b"Inf" in data:
        for match in _STRING_OR_TOKEN.finditer(data):
            sign, token = match.groups()
            if token is not None:
                before = data[position : match.start()]
                strict += (before, b"null")
                tokens += (before, b"NaN" if token == b"NaN" else sign.strip(b"+") + b"Infinity")
                position = match.end()
    if not tokens:
        raise _error(why, data)
    rest = data[position:]
    try:
        # `json` is laxer than JSON in other ways, and recursive; what it reads is known to be right beforehand.
        _check_nesting(orjson.loads(b"".join((*strict, rest))))
        return json.loads(b"".join((*tokens, rest)), object_pairs_hook=pairs)
    except RecursionError:
        raise NestingError from None
    except ValueError as error:
        raise _error(error, data) from None


def _check_nesting(value: Any) -> None:
    """Refuse what `json` reads, or not, depending on the version of Python.

    Raises:
        NestingError: lists and objects are in each other more than `MAX_NESTING` deep.
    """
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MAX_NESTING):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
    if level:
        raise NestingError


def _error(error: ValueError, data: bytes) -> InvalidArgumentError:
    text = str(error)
    if "Not enough memory" in text:  # in orjson's words
        raise MemoryError from None
    if "depth" in text.lower() or "recursion" in text.lower():
        return NestingError()
    reason = find_fault(data) or text
    return InvalidArgumentError(f"failed to parse the request JSON buffer: {reason}")
