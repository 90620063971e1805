"""Filter patterns over the properties of lines that are JSON objects.

pattern     "{" either "}"
either      both ("||" both)*
both        condition ("&&" condition)*
condition   "(" either ")" | selector comparison
selector    "$" ("." name | "[" index "]" | "['" name "']")*
comparison  ("=" | "!=" | "<" | "<=" | ">" | ">=") value | "IS" ("NULL" | "TRUE" | "FALSE") | "NOT" "EXISTS"
value       "text" | text | number

A ``*`` in a text stands for any characters. A property that is not there fits nothing but ``NOT EXISTS``.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<selector>\$(?:\.[A-Za-z0-9_@-]+|\.?\[(?:[0-9]+|'[^']*'|"[^"]*")\])+)
      | (?P<symbol>&&|\|\||!=|<=|>=|[=<>(){}])
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<word>[^\s"$&|!=<>(){}]+)
      | (?P<end>$)
    )""",
    re.VERBOSE,
)
_STEP = re.compile(r"""\.([A-Za-z0-9_@-]+)|\.?\[(?:([0-9]+)|'([^']*)'|"([^"]*)")\]""")
_ESCAPED = re.compile(r"\\(.)")
_MAX_DEPTH = 20

_MISSING = object()

Condition = Callable[[Any], bool]
"""Whether a document fits."""

_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS: Mapping[str, Any] = {"NULL": None, "TRUE": True, "FALSE": False}


class PatternError(Exception):
    """It is no filter pattern; the text says why."""


def parse_json_pattern(text: str) -> Callable[[str], bool]:
    """What tells whether a line is a JSON object that fits.

    Raises:
        PatternError: it is no such pattern.
    """
    condition = _Parser(text).whole()

    def matches(line: str) -> bool:
        if not line.lstrip().startswith("{"):
            return False
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            return False
        return condition(document)

    return matches


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._kind, self._found = "", ""
        self._advance()

    def _advance(self) -> str:
        """Go to the next token: the one before it."""
        before = self._found
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise PatternError(f"'{self._text[self._position :].lstrip()[:1]}' is not expected")
        self._kind = match.lastgroup or ""
        self._found = match[self._kind]
        self._position = match.end()
        return before

    def _accept(self, symbol: str) -> bool:
        if self._kind in ("symbol", "word") and self._found == symbol:
            self._advance()
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise PatternError(f"expected '{symbol}', found {self._shown}")

    @property
    def _shown(self) -> str:
        return f"'{self._found}'" if self._kind != "end" else "the end"

    def whole(self) -> Condition:
        self._expect("{")
        condition = self._either()
        self._expect("}")
        if self._kind != "end":
            raise PatternError(f"expected the end, found {self._shown}")
        return condition

    def _either(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"brackets are nested more than {_MAX_DEPTH} deep")
        conditions = [self._both()]
        while self._accept("||"):
            conditions.append(self._both())
        self._depth -= 1
        return _any_of(conditions)

    def _both(self) -> Condition:
        conditions = [self._condition()]
        while self._accept("&&"):
            conditions.append(self._condition())
        return _all_of(conditions)

    def _condition(self) -> Condition:
        if self._accept("("):
            condition = self._either()
            self._expect(")")
            return condition
        if self._kind != "selector":
            raise PatternError(f"expected a property such as $.level, found {self._shown}")
        return _property(_steps(self._advance()), self._comparison())

    def _comparison(self) -> Condition:
        if self._accept("NOT"):
            self._expect("EXISTS")
            return lambda value: value is _MISSING
        if self._accept("IS"):
            if self._kind != "word" or self._found not in _CONSTANTS:
                raise PatternError(f"expected NULL, TRUE or FALSE, found {self._shown}")
            constant = _CONSTANTS[self._advance()]
            return lambda value: value is constant
        if self._kind != "symbol" or self._found not in ("=", "!=", *_ORDERS):
            raise PatternError(f"expected a comparison, found {self._shown}")
        symbol = self._advance()
        if self._kind not in ("text", "word"):
            raise PatternError(f"expected a value, found {self._shown}")
        is_quoted, text = self._kind == "text", self._advance()
        number = math.nan if is_quoted else _number(text)
        if symbol in _ORDERS:
            if math.isnan(number):
                raise PatternError(f"'{symbol}' compares with a number, not with {text}")
            return _ordered(_ORDERS[symbol], number)
        equal = _equal(_ESCAPED.sub(r"\1", text[1:-1]) if is_quoted else text, number)
        return equal if symbol == "=" else lambda value: value is not _MISSING and not equal(value)


def _any_of(conditions: Sequence[Condition]) -> Condition:
    return (
        conditions[0] if len(conditions) == 1 else lambda document: any(each(document) for each in conditions)
    )


def _all_of(conditions: Sequence[Condition]) -> Condition:
    return (
        conditions[0] if len(conditions) == 1 else lambda document: all(each(document) for each in conditions)
    )


def _property(steps: Sequence[str | int], fits: Condition) -> Condition:
    def check(document: Any) -> bool:
        value = document
        for step in steps:
            if isinstance(step, str):
                value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else _MISSING
        return fits(value)

    return check


def _steps(selector: str) -> Sequence[str | int]:
    """The names and positions that lead to a property."""
    found: list[str | int] = []
    for name, index, *quoted in _STEP.findall(selector):
        found.append(int(index) if index else name or "".join(quoted))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ordered(order: Callable[[float, float], bool], number: float) -> Condition:
    return lambda value: _is_number(value) and order(value, number)


def _equal(text: str, number: float) -> Condition:
    """Whether a value is a number or a text; both for what is written without quotes."""
    parts = text.split("*")
    return lambda value: (
        value == number if _is_number(value) else isinstance(value, str) and _fits(parts, value)
    )


def _fits(parts: Sequence[str], text: str) -> bool:
    """Whether a text is these parts with anything between them."""
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return len(text) - position >= len(last) and text.endswith(last)
