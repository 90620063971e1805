"""Looking at a Python model's file without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from halimede.config.validate import Problem

_CLASS = "TritonPythonModel"


def source_problems(model: str, path: Path, own_python: bool) -> Iterator[tuple[int, Problem]]:
    """What keeps a model's file from being loaded, each with its line.

    Args:
        model: the model's name.
        path: the file.
        own_python: the model brings an interpreter, whose grammar may be another than ours.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        yield (
            0,
            Problem(model, "", f"Python model file not found in '{path}'", f"put the model's file at {path}"),
        )
        return
    except (SyntaxError, ValueError) as error:
        if not own_python:
            yield (
                getattr(error, "lineno", None) or 0,
                Problem(model, "", f"{type(error).__name__}: {error}", ""),
            )
        return
    if not any(_binds(statement, _CLASS) for statement in ast.walk(tree)):
        message = f"the file defines no class {_CLASS}"
        yield 0, Problem(model, "", message, f"class {_CLASS}: with a method execute(self, requests)")


def _binds(node: ast.AST, name: str) -> bool:
    """Whether the node may give something that name; an import of everything may."""
    if isinstance(node, ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) in (name, "*") for alias in node.names)
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
