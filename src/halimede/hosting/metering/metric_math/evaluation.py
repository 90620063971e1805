"""Computes the expressions of a request, each after those that it refers to."""

from collections.abc import Collection, Mapping

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.metric_math.functions import KEYWORDS, call, check_name
from halimede.hosting.metering.metric_math.operators import apply
from halimede.hosting.metering.metric_math.parser import (
    Array,
    Call,
    Chain,
    Literal,
    Negation,
    Node,
    Reference,
    parse,
    references,
)
from halimede.hosting.metering.metric_math.values import (
    Context,
    MathError,
    TimeSeries,
    Value,
    count_of,
    kind_of,
)


class Expressions:
    """The expressions of a request, read and found to be sound."""

    def __init__(
        self, texts: Mapping[str, str], metrics: Collection[str], periods: Mapping[str, int]
    ) -> None:
        """Read expressions.

        Args:
            texts: id → expression.
            metrics: the ids of the queries for metrics, which expressions may refer to.
            periods: id → the period of an expression that says one, in seconds.

        Raises:
            ApiError: one cannot be read, has a function that there is not, or refers to no query or in a circle
                (``ValidationError``).
        """
        self._trees: dict[str, Node] = {}
        self._periods = periods
        for name, text in texts.items():
            with _Errors(name):
                self._trees[name] = parse(text)
                _check(self._trees[name], texts.keys() | set(metrics))
        self._order = self._sorted()

    def _sorted(self) -> list[str]:
        """The expressions in an order in which each comes after those that it refers to."""
        waiting = {
            name: {each for each in references(tree) if each in self._trees}
            for name, tree in self._trees.items()
        }
        order: list[str] = []
        while waiting:
            ready = [name for name, wanted in waiting.items() if not wanted & waiting.keys()]
            if not ready:
                names = ", ".join(f"'{name}'" for name in waiting)
                raise ApiError("ValidationError", f"Circular reference among the expressions {names}")
            order += ready
            for name in ready:
                del waiting[name]
        return order

    def compute(self, context: Context) -> Mapping[str, list[TimeSeries]]:
        """The series of each expression, by its id. Blocks for as long as it computes.

        Raises:
            ApiError: an expression cannot be computed, or its result is no series (``ValidationError``).
        """
        period = context.period
        for name in self._order:
            with _Errors(name):
                context.period = self._periods.get(name, period)
                context.results[name] = _value(self._trees[name], context)
        found = {}
        for name in self._trees:
            value = context.results[name]
            if isinstance(value, (float, str)):
                msg = (
                    f"Error in expression '{name}': the result is a {kind_of(value)}; it must be a time series or an "
                    f"array of time series, such as TIME_SERIES(…) of a number"
                )
                raise ApiError("ValidationError", msg)
            found[name] = value if isinstance(value, list) else [value]
        return found


class _Errors:
    """Names the expression in errors."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, MathError):
            raise ApiError("ValidationError", f"Error in expression '{self._name}': {error}") from None


def _check(tree: Node, known: Collection[str]) -> None:
    """Refuse functions and references that there are not."""
    waiting: list[tuple[Node, bool]] = [(tree, False)]
    while waiting:
        node, is_argument = waiting.pop()
        if isinstance(node, Reference):
            if node.name not in known and not (is_argument and node.name in KEYWORDS):
                raise MathError(f"there is no query with the Id '{node.name}'")
        elif isinstance(node, Call):
            check_name(node.name)
            waiting += [(each, True) for each in node.arguments]
        elif isinstance(node, Chain):
            waiting += [(node.first, False), *((operand, False) for _, operand in node.rest)]
        elif isinstance(node, Negation):
            waiting.append((node.operand, False))
        elif isinstance(node, Array):
            waiting += [(each, False) for each in node.members]


def _value(node: Node, context: Context) -> Value:
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Reference):
        if node.name in context.metrics:
            return context.metrics[node.name]
        return context.results.get(node.name, node.name)
    if isinstance(node, Call):
        return call(node.name, context, [_value(each, context) for each in node.arguments])
    if isinstance(node, Array):
        return _array([_value(each, context) for each in node.members])
    if isinstance(node, Negation):
        positive = _value(node.operand, context)
        context.spend(count_of(positive))
        return apply("*", -1.0, positive)
    value = _value(node.first, context)
    for symbol, operand in node.rest:
        right = _value(operand, context)
        context.spend(count_of(value) + count_of(right))
        value = apply(symbol, value, right)
    return value


def _array(members: list[Value]) -> list[TimeSeries]:
    found: list[TimeSeries] = []
    for member in members:
        if isinstance(member, (float, str)):
            raise MathError(f"an array holds time series, not a {kind_of(member)}")
        found += member if isinstance(member, list) else [member]
    return found
