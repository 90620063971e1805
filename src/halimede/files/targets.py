"""What `NAME=TARGET` on the command line stands for: a file, a directory, or a function of a module."""

import ast
import difflib
import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from halimede.functions.callables import is_object, module_of, qualified_name
from halimede.functions.declaration import DeclarationError, options_of
from halimede.functions.places import loading
from halimede.functions.repository import model_name

_NAMED: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*)=(.+)", re.DOTALL)
_FUNCTION: Final = re.compile(
    r"((?:[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*|[^:]*\.py):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
)
_GENERIC: Final = frozenset({"model", "xgboost", "checkpoint", "dali", "saved_model"})
"""Stems of file names that say what the file is, and not which model."""


class TargetError(Exception):
    """What was given cannot be served; the text says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model that is given.

    Attributes:
        name: the model's name.
        source: what was given, as it was written.
        what: the path, or the function or class.
    """

    name: str
    source: str
    what: Path | Callable[..., Any]


def read_target(given: object) -> Target:
    """What is given: a path, `NAME=PATH`, `module:function`, `NAME=module:function`, or the function itself.

    Raises:
        TargetError: there is no such thing.
        DeclarationError: it is a function or an object that cannot be served.
    """
    if callable(given):
        return Target(model_name(given), f"{module_of(given)}:{qualified_name(given)}", given)
    if not isinstance(given, str | Path):
        kind = type(given).__qualname__
        raise DeclarationError(
            f"an object of class '{kind}' has no method __call__, which would answer requests"
        )
    text = str(given)
    name = ""
    named = _NAMED.fullmatch(text)
    if named is not None and not Path(text).exists():
        name, text = named.groups()
    path = Path(text)
    if path.exists():
        return Target(name or _name_of(path), text, path)
    reference = _FUNCTION.fullmatch(text)
    if reference is None:
        raise TargetError(_missing(text))
    function = _function(*reference.groups())
    name = name or options_of(function).name
    return Target(name or (reference[2] if is_object(function) else model_name(function)), text, function)


def _name_of(path: Path) -> str:
    """The model's name: that of the file, or of its directory where the file's says nothing."""
    path = path.absolute()
    stem = path.name if path.is_dir() else path.stem
    for suffix in (".savedmodel", ".onnx", ".pt"):
        stem = stem.removesuffix(suffix)
    if stem in _GENERIC or (path.is_dir() and stem.isdecimal()):
        parent = path.parent.name
        if parent.isdecimal():
            parent = path.parent.parent.name
        stem = parent or stem
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", stem) or "model"


def _function(module: str, name: str) -> Callable[..., Any]:
    if module.endswith(".py"):
        path = Path(module).absolute()
        if not path.is_file():
            raise TargetError(_missing(module))
        directory, module = str(path.parent), path.stem
    else:
        directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        with loading(module):
            found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name in (module, top):
            raise TargetError(
                f"there is no module '{module}', neither in {directory} nor installed here; write the path "
                f"of its file, such as ./{top}.py:{name}, if it lies elsewhere"
            ) from None
        raise TargetError(f"module '{module}' cannot be imported: {error}") from None
    except Exception as error:  # of the module's own code
        raise TargetError(f"module '{module}' cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        names = [each for each, value in vars(found).items() if callable(value) and not each.startswith("_")]
        if not hasattr(found, part):
            nearest = difflib.get_close_matches(part, names, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            raise TargetError(f"module '{module}' has no '{part}'{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(
            f"'{module}:{name}' is neither a function nor a class, but of type {type(found).__name__}"
        )
    function: Callable[..., Any] = found
    return function


def functions_in(path: Path) -> list[str]:
    """The functions, and classes with `__call__`, that a Python file defines at its top, but for private ones."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        each.name
        for each in tree.body
        if (isinstance(each, functions) and not each.name.startswith("_"))
        or (
            isinstance(each, ast.ClassDef)
            and any(isinstance(method, functions) and method.name == "__call__" for method in each.body)
        )
    ]


def _missing(text: str) -> str:
    path = Path(text)
    try:
        beside = [each.name for each in path.parent.iterdir()]
    except OSError:
        beside = []
    nearest = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"; did you mean '{path.with_name(nearest[0])}'?" if nearest else ""
    if not (hint or "/" in text or path.suffix):
        hint = f"; write the path of a model, such as ./{text}.onnx, or {text}:NAME for a function of the module {text}"
    return f"'{text}' is neither a file or directory nor module:function{hint}"
