"""Looking at a Python model's file without running it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
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


def told_failure(message: str, path: Path) -> tuple[int, str]:
    """Line and text of a failure of the model's code, whose message ends with where it happened, innermost first.

    Args:
        message: of the error.
        path: the model's file; a failure elsewhere keeps its innermost place.
    """
    text, _, trace = message.partition("\n\nAt:\n")
    lines: list[str] = re.findall(rf"{re.escape(str(path))}\((\d+)\)", trace)
    places = trace.split("\n")
    if lines and str(path) in places[0]:
        return int(lines[0]), text
    at = next((place.strip() for place in places if place.strip() and "<frozen" not in place), "")
    return (int(lines[0]) if lines else 0), f"{text} (at {at})" if at else text


def import_fix(message: str) -> str:
    """What would fix an import that failed; "" if that cannot be told."""
    missing = re.search(r"No module named '([\w.]+)'", message)
    if missing is None:
        return ""
    module = missing[1].partition(".")[0]
    return (
        f"install the package that has the module '{module}' beside the server, or bring an environment with it "
        f"(EXECUTION_ENV_PATH)"
    )


def unlisted_sides(config: ModelConfig) -> Iterator[Problem]:
    """Inputs or outputs that neither the configuration nor `auto_complete_config` lists.

    Such a model loads, as in Triton, but answers nobody.
    """
    for side in ("input", "output"):
        if not getattr(config, side):
            message = (
                f"neither config.pbtxt nor the model's auto_complete_config lists an {side}, so the model is loaded "
                f"but no request can {'give' if side == 'input' else 'get'} one"
            )
            fix = f'{side} {{ name: "{side.upper()}0" data_type: TYPE_FP32 dims: [ -1 ] }}'
            yield Problem(config.name, side, message, fix)
