"""Names of the values that a program with a call specification takes and gives: `torch.export`, AOTInductor.

A call specification is the tree of the arguments, `(positional, by keyword)`, or that of the result. Each leaf has a
name, and an alias that says where it is, as in Triton's PyTorch backend.
"""

from collections.abc import Sequence
from typing import Any

from torch.utils import _pytree as pytree

Name = tuple[str, str]
"""Name and alias."""


def input_names(spec: pytree.TreeSpec, arguments: Sequence[str]) -> list[Name]:
    """Name and alias of each input: the argument's name or the dictionary's key, and where it is in a call.

    Args:
        spec: of the arguments.
        arguments: names of the positional ones, perhaps none; others go by ``INPUT__<index>``.
    """
    names: list[Name] = []
    for index, ((side, *path), _) in enumerate(leaves(spec)):
        first, *rest = path
        if side.idx == 0:
            place = f"ARGS[{first.idx}]"
            name = arguments[first.idx] if first.idx < len(arguments) else f"INPUT__{index}"
        else:
            place, name = f"KWARGS[{first.key}]", str(first.key)
        names.append(_named(name, place, rest))
    return _distinct(names)


def output_names(spec: pytree.TreeSpec) -> list[Name]:
    """Name and alias of each output: the dictionary's key or ``OUTPUT__<index>``, and where it is in the result."""
    return _distinct(
        [_named(f"OUTPUT__{index}", "RESULT", path) for index, (path, _) in enumerate(leaves(spec))]
    )


def leaves(spec: pytree.TreeSpec) -> list[tuple[Any, Any]]:
    """Path of each leaf, and its number."""
    found: list[tuple[Any, Any]] = pytree.tree_flatten_with_path(
        pytree.tree_unflatten(range(spec.num_leaves), spec)
    )[0]
    return found


def _named(name: str, place: str, path: Sequence[Any]) -> Name:
    keys = [key.idx if isinstance(key, pytree.SequenceKey) else key.key for key in path]
    place += "".join(f"[{key}]" for key in keys)
    if keys and isinstance(path[-1], pytree.MappingKey):
        return str(keys[-1]), place
    # an element of a list within an argument has no name but its place
    return (place if keys and not place.startswith("RESULT") else name), place


def _distinct(names: list[Name]) -> list[Name]:
    """The same, with the place for a name that is there twice."""
    every = [name for name, _ in names]
    return [(name if every.count(name) == 1 else place, place) for name, place in names]
