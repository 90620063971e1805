"""What functions, classes, methods, objects of `functools.partial` and objects with `__call__` have in common."""

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

Target = Callable[..., Any]


def is_servable(target: Any) -> bool:
    """Whether it is a class, or calls code in Python, whose annotations can be read."""
    return inspect.isclass(target) or isinstance(code_of(target), FunctionType | type)


def is_object(target: Any) -> bool:
    """Whether it is an object with `__call__`."""
    return not (inspect.isclass(target) or inspect.isroutine(target) or isinstance(target, functools.partial))


def code_of(target: Any) -> Any:
    """The function that is called in the end, or the class; of an object, its class."""
    if isinstance(target, functools.partial):
        return code_of(target.func)
    if inspect.ismethod(target):
        return target.__func__
    if is_object(target):
        return type(target) if inspect.isfunction(type(target).__call__) else target
    return target


def qualified_name(target: Target) -> str:
    """Its name with those of classes and functions around it; of an object, that of its class."""
    name: str = getattr(code_of(target), "__qualname__", repr(target))
    return name


def module_of(target: Target) -> str:
    """The module that its code is in."""
    return str(getattr(code_of(target), "__module__", ""))


def global_name(target: Target) -> tuple[str, str] | None:
    """Module and name by which another process finds it; None if it can only be sent by value."""
    name, module = qualified_name(target), module_of(target)
    if code_of(target) is target:
        return None if "<" in name else (module, name)
    for each in (module, "__main__"):
        for key, value in list(vars(sys.modules[each]).items()) if each in sys.modules else ():
            if value is target:
                return each, key
    return None
