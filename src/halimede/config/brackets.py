"""Which list or message of a configuration's text is not closed: protobuf says only what it misses, and that late."""

import re
from typing import Final, NamedTuple

_CLOSING: Final = {"[": "]", "{": "}", "<": ">"}
_TOKEN: Final = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\[\]{}<>]""")
_FIELD: Final = re.compile(r"(\w+)\s*:?\s*\Z")
_LONGEST_NAME: Final = 80


class _Opened(NamedTuple):
    """An open bracket and where it stands."""

    bracket: str
    start: int


def bracket_fault(text: str, position: int) -> str:
    """What is wrong with the brackets of a text that cannot be parsed, "" if nothing is.

    Args:
        text: the text.
        position: where the parser gave up, counted from 0.
    """
    opened: list[_Opened] = []
    suspects: list[_Opened] | None = None
    for token in _TOKEN.finditer(text):
        bracket, start = token[0], token.start()
        if suspects is None and start >= position:
            suspects = opened.copy()
        if bracket in _CLOSING:
            opened.append(_Opened(bracket, start))
        elif bracket in _CLOSING.values():
            if not opened:
                return f"the '{bracket}' in line {_line(text, start)} closes nothing"
            if _CLOSING[opened[-1].bracket] != bracket:
                return _unclosed(text, opened)
            opened.pop()
    if not opened:
        return ""
    depth = 0  # of the brackets that were open where the parser gave up, so many are never closed
    for before, after in zip(suspects or opened, opened, strict=False):
        if before != after:
            break
        depth += 1
    return _unclosed(text, opened[:depth] or opened)


def _unclosed(text: str, opened: list[_Opened]) -> str:
    """That the innermost of the open brackets is not closed."""
    bracket, start = opened[-1]
    name = _field_before(text, start)
    if name:
        what = f"the {'list' if bracket == '[' else 'message'} '{name}'"
    else:  # an element of a list
        around = _field_before(text, opened[-2].start) if len(opened) > 1 else ""
        what = f"an element of the list '{around}'" if around else "what"
    return (
        f"{what} that begins in line {_line(text, start)} is not closed; its '{_CLOSING[bracket]}' is missing"
    )


def _field_before(text: str, start: int) -> str:
    match = _FIELD.search(text[max(0, start - _LONGEST_NAME) : start])
    return match[1] if match else ""


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
