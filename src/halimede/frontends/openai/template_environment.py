"""Jinja as chat templates expect it. Imports jinja2, which is not always installed."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from jinja2 import Environment, Template, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from halimede.core.errors import InvalidArgumentError

_CONTENT: Final = "content"


class _Generation(Extension):
    """The tag around what the model has written, for which only training has a use: the text within stays."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _refuse(message: object) -> str:
    raise InvalidArgumentError(f"the chat template refuses the messages: {message}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


_ENVIRONMENT: Final = _environment()


class Compiled:
    """A compiled template.

    Attributes:
        variables: the names that it uses and does not set itself.
        loops_over_content: it goes through the parts that a message's content may consist of.

    Args:
        source: its text.

    Raises:
        jinja2.TemplateError: it is malformed.
    """

    def __init__(self, source: str) -> None:
        tree = _ENVIRONMENT.parse(source)
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        self.loops_over_content = any(_is_content(loop.iter) for loop in tree.find_all(nodes.For))
        self._template: Template = _ENVIRONMENT.from_string(source)

    def render(self, variables: Mapping[str, Any]) -> str:
        """Its text with these variables."""
        return self._template.render(variables)


def _is_content(node: nodes.Node) -> bool:
    """Whether an expression is the content of a message."""
    match node:
        case nodes.Getattr(attr=name) | nodes.Name(name=name):
            return bool(name == _CONTENT)
        case nodes.Getitem(arg=nodes.Const(value=name)):
            return bool(name == _CONTENT)
    return False
