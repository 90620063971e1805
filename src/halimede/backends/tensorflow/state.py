"""What of a graph's state its outputs depend on: whether a run may change it, and how large its variables are."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from halimede.backends.tensorflow.runtime import operator_definition, tf

_CALLS = frozenset({"StatefulPartitionedCall", "If", "While", "Case", "Assert"})
_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "DisableCopyOnRead"})
_TABLES = frozenset(
    {
        "HashTable",
        "HashTableV2",
        "LookupTableFind",
        "LookupTableFindV2",
        "LookupTableSize",
        "LookupTableSizeV2",
    }
)
_CONSTANT = _CALLS | _VARIABLES | _READS


@dataclass(frozen=True, slots=True)
class State:
    """The operators with state that some outputs depend on.

    Attributes:
        operators: their types.
        variable_bytes: size of the variables.
    """

    operators: frozenset[str]
    variable_bytes: int

    @property
    def has_variables(self) -> bool:
        """Whether there are variables among them."""
        return not self.operators.isdisjoint(_VARIABLES)

    @property
    def is_constant(self) -> bool:
        """Whether they are variables that runs only read, and nothing else."""
        return self.operators <= _CONSTANT

    @property
    def repeatable(self) -> bool:
        """Whether the same inputs always give the same outputs, and a run changes nothing."""
        return self.operators <= _CONSTANT | _TABLES


def state_of(graph: Any, keys: Iterable[str]) -> State:
    """The state of a `tf.GraphDef` that the tensors of those names depend on."""
    nodes = {node.name: node for node in graph.node}
    pending = [_operator(key) for key in keys]
    seen: set[str] = set()
    reached = []
    while pending:
        name = pending.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        reached.append(nodes[name])
        pending += [_operator(key) for key in nodes[name].input]
    functions = {function.signature.name: function for function in graph.library.function}
    called: set[str] = set()
    operators: set[str] = set()
    size = 0
    while reached:
        node = reached.pop()
        for name in _functions(node):
            if name in functions and name not in called:
                called.add(name)
                reached += functions[name].node_def
        if node.op not in functions and _has_state(node.op):
            operators.add(node.op)
        if node.op in _VARIABLES:
            sizes = [dim.size for dim in node.attr["shape"].shape.dim]
            size += prod(sizes) * max(1, tf.dtypes.as_dtype(node.attr["dtype"].type).size or 0)
    return State(frozenset(operators), size)


def _operator(key: str) -> str:
    return key.removeprefix("^").partition(":")[0]


def _functions(node: Any) -> list[str]:
    """Names of the functions that the node may call."""
    names = [node.op]
    for value in node.attr.values():
        names.append(value.func.name)
        names += [each.name for each in value.list.func]
    return names


def _has_state(kind: str) -> bool:
    definition = operator_definition(kind)
    # an operator that is not known may do anything
    return (
        definition is None
        or definition.is_stateful
        or any(argument.is_ref for argument in definition.input_arg)
    )
