"""Expressions of metric math, read into trees.

expression  or
or          and (("OR" | "||") and)*
and         compared (("AND" | "&&") compared)*
compared    sum (("==" | "!=" | "<=" | ">=" | "<" | ">") sum)*
sum         product (("+" | "-") product)*
product     signed (("*" | "/") signed)*
signed      "-"* power
power       operand ("^" signed)?
operand     number | "text" | name | NAME "(" arguments ")" | "[" arguments "]" | "(" expression ")"
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from halimede.hosting.metering.metric_math.values import MathError

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<text>"[^"]*"|'[^']*')
      | (?P<symbol>&&|\|\||==|!=|<=|>=|[-+*/^<>()\[\],])
      | (?P<end>$)
    )""",
    re.VERBOSE,
)
_MAX_DEPTH = 40
"""So deep brackets and functions may be nested."""

_OR, _AND = {"OR": "||", "||": "||"}, {"AND": "&&", "&&": "&&"}
_COMPARISONS = {symbol: symbol for symbol in ("==", "!=", "<=", ">=", "<", ">")}
_SUMS, _PRODUCTS = {"+": "+", "-": "-"}, {"*": "*", "/": "/"}


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a text."""

    value: float | str


@dataclass(frozen=True, slots=True)
class Reference:
    """The id of another query, or a keyword of the function that it is an argument of."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands with operators of the same rank between them, computed from left to right."""

    first: "Node"
    rest: Sequence[tuple[str, "Node"]]


@dataclass(frozen=True, slots=True)
class Negation:
    """The operand with the other sign."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    name: str
    arguments: Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Array:
    """Several series."""

    members: Sequence["Node"]


Node = Literal | Reference | Chain | Negation | Call | Array


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        MathError: it is none; the text says where.
    """
    return _Parser(text).whole()


def references(node: Node) -> Iterator[str]:
    """The names that an expression refers to."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Reference):
            yield node.name
        elif isinstance(node, Chain):
            waiting += [node.first, *(operand for _, operand in node.rest)]
        elif isinstance(node, Negation):
            waiting.append(node.operand)
        elif isinstance(node, Call):
            waiting += node.arguments
        elif isinstance(node, Array):
            waiting += node.members


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._index = 0
        self._depth = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def _accept(self, symbol: str) -> bool:
        found = self._next.kind == "symbol" and self._next.text == symbol
        self._index += found
        return found

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._unexpected(f"expected '{symbol}'")

    def _unexpected(self, wanted: str) -> MathError:
        token = self._next
        found = f"'{token.text}'" if token.text else "the end"
        return MathError(f"{wanted} at character {token.position + 1}, found {found}")

    def whole(self) -> Node:
        node = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("expected an operator")
        return node

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MathError(f"brackets and functions are nested more than {_MAX_DEPTH} deep")
        node = self._chain(self._and, _OR)
        self._depth -= 1
        return node

    def _and(self) -> Node:
        return self._chain(self._compared, _AND)

    def _compared(self) -> Node:
        return self._chain(self._sum, _COMPARISONS)

    def _sum(self) -> Node:
        return self._chain(self._product, _SUMS)

    def _product(self) -> Node:
        return self._chain(self._signed, _PRODUCTS)

    def _chain(self, operand: Callable[[], Node], operators: dict[str, str]) -> Node:
        first = operand()
        rest = []
        while self._next.kind in ("symbol", "name") and self._next.text in operators:
            operator = operators[self._take().text]
            rest.append((operator, operand()))
        return Chain(first, rest) if rest else first

    def _signed(self) -> Node:
        negative = False
        while self._accept("-"):
            negative = not negative
        node = self._power()
        return Negation(node) if negative else node

    def _power(self) -> Node:
        base = self._operand()
        if not self._accept("^"):
            return base
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MathError(f"powers are nested more than {_MAX_DEPTH} deep")
        exponent = self._signed()
        self._depth -= 1
        return Chain(base, [("^", exponent)])

    def _operand(self) -> Node:
        token = self._next
        if token.kind == "number":
            return Literal(float(self._take().text))
        if token.kind == "text":
            return Literal(self._take().text[1:-1])
        if token.kind == "name" and token.text not in (*_OR, *_AND):
            self._take()
            return Call(token.text, self._list(")")) if self._accept("(") else Reference(token.text)
        if self._accept("["):
            return Array(self._list("]"))
        if self._accept("("):
            node = self._expression()
            self._expect(")")
            return node
        raise self._unexpected("expected a number, an id, a function or a bracket")

    def _list(self, end: str) -> list[Node]:
        members: list[Node] = []
        if self._accept(end):
            return members
        members.append(self._expression())
        while self._accept(","):
            members.append(self._expression())
        self._expect(end)
        return members


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            raise MathError(f"unknown character '{rest[:1]}' at character {len(text) - len(rest) + 1}")
        kind = match.lastgroup or ""
        yield _Token(kind, match[kind], match.start(kind))
        if kind == "end":
            return
        position = match.end()
