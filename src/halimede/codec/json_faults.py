"""Why a text is no JSON, in the words that clients of tritonserver know, which are RapidJSON's.

Looked for only when a request is refused, and for so many tokens at most, since this is slow.
"""

import re
from math import isinf
from typing import Final

_MAX_TOKENS: Final = 10_000
_CLOSING: Final = {b"{": b"}", b"[": b"]"}
_WORDS: Final = {word[:1]: word for word in (b"true", b"false", b"null")}
_MISSING_COMMA: Final = {
    b"}": "Missing a comma or '}' after an object member.",
    b"]": "Missing a comma or ']' after an array element.",
}

_SPACE = re.compile(rb"[ \t\n\r]*+")
_DIGITS = re.compile(rb"[0-9]*+")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*+|NaN|Inf(?:inity)?)")
_STRING = re.compile(
    rb"""(?: [^"\\\x00-\x1f]++
        | \\["\\/bfnrt]
        | \\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
        | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    ){1,1000}""",
    re.VERBOSE,
)
"""A part of a string: a group of alternatives takes memory for each repetition, unless it is possessive, which before
Python 3.11.5 is faulty."""
_UNICODE_ESCAPE = re.compile(rb"\\u[0-9a-fA-F]{4}")


class _FaultError(Exception):
    """What is wrong, and the byte where."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(f"{text} at {position}")


def find_fault(text: bytes) -> str | None:
    """What is wrong first, and at which byte; None if nothing is, or it is too far from the beginning."""
    try:
        _read_document(text)
    except _FaultError as fault:
        return str(fault)
    return None


def _read_document(text: bytes) -> None:
    position = _skip(text, 0)
    if position == len(text):
        raise _FaultError("The document is empty.", position)
    closing: list[bytes] = []  # of the arrays and objects that are open
    for _ in range(_MAX_TOKENS):
        opening = text[position : position + 1]
        if opening in _CLOSING:
            position = _skip(text, position + 1)
            if text[position : position + 1] != _CLOSING[opening]:
                closing.append(_CLOSING[opening])
                position = _read_name(text, position) if opening == b"{" else position
                continue
            position += 1
        else:
            position = _read_string(text, position) if opening == b'"' else _read_scalar(text, position)
        while True:
            position = _skip(text, position)
            following = text[position : position + 1]
            if not closing:
                if following:
                    msg = "The document root must not be followed by other values."
                    raise _FaultError(msg, position)
                return
            if following == b",":
                position = _skip(text, position + 1)
                if closing[-1] == b"}":
                    position = _read_name(text, position)
                break
            if following != closing[-1]:
                raise _FaultError(_MISSING_COMMA[closing[-1]], position)
            closing.pop()
            position += 1


def _skip(text: bytes, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _read_name(text: bytes, position: int) -> int:
    """Where the value of a member begins."""
    if text[position : position + 1] != b'"':
        raise _FaultError("Missing a name for object member.", position)
    position = _skip(text, _read_string(text, position))
    if text[position : position + 1] != b":":
        raise _FaultError("Missing a colon after a name of object member.", position)
    return _skip(text, position + 1)


def _read_string(text: bytes, position: int) -> int:
    end = position + 1
    while match := _STRING.match(text, end):
        end = match.end()
    following = text[end : end + 1]
    if following == b'"':
        return end + 1
    if following in {b"", b"\0"}:
        raise _FaultError("Missing a closing quotation mark in string.", end)
    if text[end : end + 2] != b"\\u":
        raise _FaultError("Invalid escape character in string.", end)
    if _UNICODE_ESCAPE.match(text, end):
        raise _FaultError("The surrogate pair in string is invalid.", end)
    raise _FaultError("Incorrect hex digit after \\u escape in string.", end)


def _read_scalar(text: bytes, position: int) -> int:
    word = _WORDS.get(text[position : position + 1])
    if word is None:
        return _read_number(text, position)
    for offset, letter in enumerate(word):
        if text[position + offset : position + offset + 1] != bytes((letter,)):
            raise _FaultError("Invalid value.", position + offset)
    return position + len(word)


def _read_number(text: bytes, start: int) -> int:
    match = _INTEGER.match(text, start)
    if match is None:
        raise _FaultError("Invalid value.", start + text.startswith(b"-", start))
    position = match.end()
    if text[position - 1 : position].isalpha():
        return position
    if text.startswith(b".", position):
        position = _read_digits(text, position + 1, "Miss fraction part in number.")
    if text[position : position + 1] in {b"e", b"E"}:
        position += 1
        position += text[position : position + 1] in {b"+", b"-"}
        position = _read_digits(text, position, "Miss exponent in number.")
    if isinf(float(text[start:position])):
        raise _FaultError("Number too big to be stored in double.", start)
    return position


def _read_digits(text: bytes, position: int, missing: str) -> int:
    match = _DIGITS.match(text, position)
    assert match is not None
    if match.end() == position:
        raise _FaultError(missing, position)
    return match.end()
