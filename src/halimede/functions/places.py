"""Where a function is, so that another process finds it too.

A function of a module is found by the module's name; one of a script by running the script again, up to where it
serves; one of a notebook, a closure or a lambda by value, with `cloudpickle`. In the serving process itself nothing
needs to be found.
"""

import importlib
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from halimede.functions.callables import global_name, qualified_name
from halimede.functions.declaration import DeclarationError

_MAIN: Final = "__mp_main__"
"""What a script that runs in a worker is called, as with `multiprocessing`: not `__main__`."""

_numbers: Final = count(1)
_here: Final[dict[str, Callable[..., Any]]] = {}
_loading: list[str] = []


class ServingReached(BaseException):
    """A script that is run to find its functions has come to where it serves them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function is.

    Attributes:
        kind: "module", "script", "pickle" or "here".
        where: the module's name, the path of the script or of the pickle, or a token of this process.
        name: its qualified name.
        package: of a script that was started as a module, its package.
        path: where modules are looked for.
        arguments: of a script, what its command line brought.
    """

    kind: str
    where: str
    name: str = ""
    package: str = ""
    path: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def place_of(target: Callable[..., Any], isolation: str, directory: Path) -> Place:
    """Where a function or class is.

    Args:
        target: the function or class.
        isolation: "none" if it will run in this process.
        directory: where its pickle is written, if it needs one.

    Raises:
        DeclarationError: another process cannot get it.
    """
    name = qualified_name(target)
    path = tuple(str(Path(each or ".").absolute()) for each in sys.path)
    if isolation == "none":
        token = f"{name}-{next(_numbers)}"
        _here[token] = target
        return Place("here", token, name)
    found = global_name(target)
    if found is not None and found[0] != "__main__":
        return Place("module", *found, path=path)
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if found is not None and file is not None and Path(file).is_file():
        spec = getattr(main, "__spec__", None)
        package = spec.parent or "" if spec is not None else ""
        return Place("script", str(Path(file).absolute()), found[1], package, path, tuple(sys.argv))
    return Place("pickle", str(_pickled(target, directory)), name, path=path)


def forget(place: Place) -> None:
    """Hold a function of this process no more."""
    if place.kind == "here":
        _here.pop(place.where, None)


def _pickled(target: Callable[..., Any], directory: Path) -> Path:
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise DeclarationError(
            f"'{qualified_name(target)}' cannot be imported by its process: it is an object, or defined in a notebook "
            "or inside another function. It is sent by value, for which cloudpickle is needed: "
            "pip install 'halimede[functions]'. Or define it at the top of a "
            'module, or serve it with @model(isolation="none")'
        ) from None
    try:
        data: bytes = cloudpickle.dumps(target)
    except Exception as error:  # whatever the objects that it uses raise
        raise DeclarationError(
            f"'{qualified_name(target)}' uses something that cannot be sent to its process: "
            f"{type(error).__name__}: {error}. "
            'Make that inside the function, or in the __init__ of a class, or serve it with @model(isolation="none")'
        ) from None
    path = directory / "function.pickle"
    path.write_bytes(data)
    return path


@contextmanager
def loading(name: str) -> Iterator[None]:
    """While a script or module runs only to find its functions: what it would serve is served already."""
    _loading.append(name)
    try:
        yield
    finally:
        _loading.remove(name)


def is_served_already() -> bool:
    """Whether what runs now is a module that is imported only to find its functions.

    Raises:
        ServingReached: it is a script, which ends here.
    """
    if _loading and _loading[-1] == _MAIN:
        raise ServingReached
    return bool(_loading)


def find_function(place: Place) -> Callable[..., Any]:
    """The function or class at a place.

    Raises:
        DeclarationError: it is not there.
    """
    if place.kind == "here":
        return _here[place.where]
    sys.path.extend(each for each in place.path if each not in sys.path)
    if place.kind == "pickle":
        pickled: Callable[..., Any] = pickle.loads(Path(place.where).read_bytes())  # noqa: S301 - our own
        return pickled
    module = _script(place) if place.kind == "script" else _module(place.where)
    found: Any = module
    for part in place.name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise DeclarationError(
            f"'{place.name}' is not in {place.where} when a worker imports it; define it before it is served, and not "
            'under `if __name__ == "__main__"`'
        )
    function: Callable[..., Any] = found
    return function


def _module(name: str) -> types.ModuleType:
    with loading(name):
        return importlib.import_module(name)


def _script(place: Place) -> types.ModuleType:
    """The module that a script makes, run up to where it serves."""
    if _MAIN in sys.modules:
        return sys.modules[_MAIN]
    module = types.ModuleType(_MAIN)
    module.__file__ = place.where
    module.__package__ = place.package
    sys.argv[:] = place.arguments
    sys.modules[_MAIN] = sys.modules["__main__"] = module  # what it has pickled names its classes so
    code = compile(Path(place.where).read_bytes(), place.where, "exec")
    with loading(_MAIN), suppress(ServingReached):
        exec(code, module.__dict__)  # noqa: S102 - which is what running a script is
    return module
