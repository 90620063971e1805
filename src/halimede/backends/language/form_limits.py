"""How large the form of a text may be: compilers take time and memory for each repetition that they unfold."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from halimede.backends.language.schemas import MAX_NESTING, nesting_of
from halimede.backends.language.structure import Structure, StructureKind

MAX_CHARACTERS: Final = 131_072
"""Of the schema, the expression, the grammar, or the list of texts."""

MAX_RULES: Final = 1000
"""Of a grammar."""

MAX_PARTS: Final = 100_000
"""Characters, classes and values, each as often as it is repeated."""

MAX_NESTED: Final = 10_000
"""Parts of a repetition in which there is another one."""

MAX_COMPILE_S: Final = 5.0
"""Forms that take more seconds to compile are refused."""

_COUNT: Final = re.compile(r"\{\s*(\d{0,9})\s*(?:,\s*(\d{0,9})\s*)?\}")
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]?", re.DOTALL)
_CHARACTER: Final = re.compile(r"\\.|.", re.DOTALL)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_RULE: Final = re.compile(r"::=")
_REPEATED: Final = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")


class _TooLargeError(Exception):
    """The form has too many parts."""


def check_size(structure: Structure) -> None:
    """Refuse a form that is too large to be compiled.

    Raises:
        InvalidArgumentError: it is.
    """
    text = structure.text
    if len(text) > MAX_CHARACTERS:
        msg = f"it has {len(text)} characters, and at most {MAX_CHARACTERS} are allowed"
        raise structure.refused(msg)
    if structure.kind is StructureKind.GRAMMAR and len(_RULE.findall(text)) > MAX_RULES:
        raise structure.refused(f"it has more than {MAX_RULES} rules")
    if structure.kind is StructureKind.JSON_SCHEMA:
        try:
            schema = orjson.loads(text)
        except orjson.JSONDecodeError:
            return  # the compiler says what is wrong
        if nesting_of(schema) > MAX_NESTING:
            raise structure.refused(f"it is nested more than {MAX_NESTING} levels deep")
    try:
        if structure.kind is StructureKind.JSON_SCHEMA:
            _add_up(_parts_of_schema(schema))
        elif structure.kind is not StructureKind.CHOICE:
            parts_of(text, quotes=structure.kind is StructureKind.GRAMMAR)
    except _TooLargeError:
        msg = (
            f"with its repetitions it has more than {MAX_PARTS} parts, or more than {MAX_NESTED} in repetitions within "
            f"each other"
        )
        raise structure.refused(msg) from None


def parts_of(text: str, *, quotes: bool = False) -> int:
    """How many parts a regular expression or a grammar has, if each repetition is written out.

    Args:
        text: of the expression.
        quotes: characters stand in quotes, as in grammars.

    Raises:
        _TooLargeError: there are more than there may be.
    """
    groups = [0]
    nested = [False]  # there is a repetition within the group
    last, last_nested = 0, False  # the part before, which a count would repeat
    place = 0
    while place < len(text):
        character = text[place]
        end = place + 1
        if character == "(":
            groups.append(0)
            nested.append(False)
            last, last_nested = 0, False
        elif character == ")" and len(groups) > 1:
            last, last_nested = groups.pop(), nested.pop()
            groups[-1] += last
            nested[-1] = nested[-1] or last_nested
        elif character == "{" and (found := _COUNT.match(text, place)) is not None:
            end = found.end()
            times = max((int(each) for each in found.groups() if each), default=1)
            groups[-1] += last * (times - 1) if times else 0
            if times > 1 and last_nested and last * times > MAX_NESTED:
                raise _TooLargeError
            last, last_nested = last * max(1, times), True
            nested[-1] = True
        elif character in "*+?|" or (quotes and character.isspace()):
            pass
        else:
            quoted = quotes and character == '"'
            pattern = _QUOTED if quoted else _CLASS if character == "[" else _CHARACTER
            if (whole := pattern.match(text, place)) is not None:
                end = whole.end()
            last, last_nested = end - place if quoted else 1, False
            groups[-1] += last
        if groups[-1] > MAX_PARTS:
            raise _TooLargeError
        place = end
    return sum(groups)


def _add_up(parts: Iterator[int]) -> None:
    total = 0
    for each in parts:
        total += each
        if total > MAX_PARTS:
            raise _TooLargeError


def _parts_of_schema(schema: Any) -> Iterator[int]:
    """The parts of each place in a schema. A repetition of items refers to them, and does not unfold them."""
    stack = [schema]
    while stack:
        value = stack.pop()
        yield 1
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            yield from (_whole(value.get(name)) for name in _REPEATED)
            if isinstance(value.get("pattern"), str):
                yield parts_of(value["pattern"])
            stack += value.values()


def _whole(value: Any) -> int:
    return int(min(value, 1 << 30)) if isinstance(value, int | float) and value > 0 else 0
