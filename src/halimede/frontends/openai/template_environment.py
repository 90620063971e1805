"""Jinja as chat templates expect it. Imports jinja2, which is not always installed."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, Final

from jinja2 import Template, meta, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai.template_limits import CURRENT, Budget, TemplateLimits

_CONTENT: Final = "content"
_CONTAINERS: Final = (dict, list, tuple)


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


class _Counted(NodeTransformer):
    """Has each round of a loop, and each text that is put together, counted."""

    def __init__(self, environment: "_Environment") -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - as jinja2 calls it
        self.generic_visit(node)
        step = nodes.Filter(nodes.Const(None), "_step", [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(step, node.test, lineno=node.lineno)
        node.set_environment(self._environment)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        function = nodes.EnvironmentAttribute("joined")
        call = nodes.Call(function, node.nodes, [], None, None, lineno=node.lineno)
        call.set_environment(self._environment)
        return call

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:  # noqa: N802
        self.generic_visit(node)
        node.filter = nodes.Filter(node.filter, "_counted", [], [], None, None, lineno=node.lineno)
        node.set_environment(self._environment)
        return node


class _Environment(ImmutableSandboxedEnvironment):
    """A sandbox that counts what a template does."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters["_counted"] = str
        self.filters = {name: _counted(name, function) for name, function in self.filters.items()}
        self.filters["_step"] = _step
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        del self.globals["lipsum"]

    @staticmethod
    def joined(*values: Any) -> str:
        """The values as one text."""
        texts = [str(value) for value in values]
        CURRENT.budget.made(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Do an operation."""
        CURRENT.budget.operate(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as jinja2 has it
        """Call a function."""
        budget = CURRENT.budget
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps `str.format`
        owner = getattr(method, "__self__", None)
        if isinstance(__obj, Macro) or __obj is dict or __obj is Namespace or isinstance(owner, _CONTAINERS):
            budget.step()  # numbers are data for these
        else:
            name = "range" if __obj is __self.globals["range"] else str(getattr(__obj, "__name__", ""))
            budget.call(name, owner, (*args, *kwargs.values()))
        return budget.result(super().call(__context, __obj, *args, **kwargs))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Counted(self).visit(tree)
        return tree


@pass_context  # so that it is not done while the template is compiled
def _step(_context: Context, _value: None) -> bool:
    """Count a round of a loop."""
    CURRENT.budget.step()
    return True


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is counted like a call."""
    passed = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        budget = CURRENT.budget
        value, *rest = args[passed:] or (None,)
        if name == "join":
            separator = rest[0] if rest and isinstance(rest[0], str) else kwargs.get("d", "")
            value = [*value] if not isinstance(value, str) else value
            args = (*args[:passed], value, *rest)
            if not isinstance(value, str):
                texts = (len(each) if isinstance(each, str) else len(str(each)) for each in value)
                budget.made(sum(texts) + len(str(separator)) * len(value))
        budget.call(name, value, (*rest, *kwargs.values()))
        return budget.result(function(*args, **kwargs))

    return run


_ENVIRONMENT: Final = _Environment()


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

    def render(self, variables: Mapping[str, Any], limits: TemplateLimits) -> str:
        """Its text with these variables.

        Raises:
            TemplateLimitError: it takes more than the limits.
            Exception: whatever goes wrong in it.
        """
        budget = CURRENT.budget = Budget(limits)
        pieces = []
        size = 0
        for piece in self._template.generate(variables):
            budget.step()
            size += len(piece)
            if size > limits.characters:
                budget.made(size)
            pieces.append(piece)
        return "".join(pieces)


def _is_content(node: nodes.Node) -> bool:
    """Whether an expression is the content of a message."""
    match node:
        case nodes.Getattr(attr=name) | nodes.Name(name=name):
            return bool(name == _CONTENT)
        case nodes.Getitem(arg=nodes.Const(value=name)):
            return bool(name == _CONTENT)
    return False
