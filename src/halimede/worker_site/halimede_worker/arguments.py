"""Arguments of what models call, taken as the original takes them: native code with strict types.

A text may be `str` or UTF-8 `bytes`, a whole number anything with `__index__` in range, a list any sequence, and a
member of an enumeration nothing but one. Whatever else is given is a `TypeError` that shows how the call would be
right.
"""

import operator
from collections.abc import Mapping
from typing import Any, List, Optional, Type, TypeVar

T = TypeVar("T")

INT64 = (-(1 << 63), (1 << 63) - 1)
UINT32 = (0, (1 << 32) - 1)
UINT64 = (0, (1 << 64) - 1)


class Signature:
    """How a function is called, for its errors, and the conversions of its arguments.

    Args:
        form: the call with the types of its arguments, as it is shown to who called it wrongly.
        name: of the function.
        kind: `function` or `constructor`.
    """

    __slots__ = ("_form", "_kind", "_name")

    def __init__(self, form: str, name: str, kind: str) -> None:
        self._form = form
        self._name = name
        self._kind = kind

    @classmethod
    def constructor(cls, form: str) -> "Signature":
        """A class's."""
        return cls(form, "__init__", "constructor")

    @classmethod
    def function(cls, form: str) -> "Signature":
        """A function's or method's."""
        return cls(form, form.partition("(")[0], "function")

    def error(self, complaint: str) -> TypeError:
        """The error for arguments that do not fit."""
        return TypeError(
            f"{self._name}(): incompatible {self._kind} arguments. The following argument types are supported:\n"
            f"    1. {self._form}\n\n{complaint}"
        )

    def mismatch(self, argument: str, expected: str, value: object) -> TypeError:
        """The error for an argument of another type than expected."""
        return self.error(f"{argument} must be {expected}, got {type(value)}")

    def text(self, argument: str, value: Any) -> str:
        """A text, or the text that UTF-8 bytes spell."""
        try:
            if isinstance(value, str):
                if not value.isascii():
                    value.encode()
                return value if type(value) is str else str.__str__(value)
            if isinstance(value, (bytes, bytearray)):
                return value.decode()
        except UnicodeError as error:
            raise self.error(f"{argument} is not valid Unicode: {error}") from None
        raise self.mismatch(argument, "str", value)

    def whole(self, argument: str, value: Any, bounds: "tuple[int, int]") -> int:
        """A whole number within the bounds, both included."""
        try:
            number = int(operator.index(value))  # an exact int, that messages can hold
        except TypeError:
            raise self.mismatch(argument, "int", value) from None
        if not bounds[0] <= number <= bounds[1]:
            raise self.error("{} must be from {} to {}, got {}".format(argument, *bounds, number))
        return number

    def number(self, argument: str, value: Any) -> float:
        """A number; a text that spells one is none."""
        if isinstance(value, (str, bytes, bytearray)):
            raise self.mismatch(argument, "float", value)
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise self.mismatch(argument, "float", value) from None

    def truth(self, argument: str, value: Any) -> bool:
        """True or False, or what says by `__bool__` which of them it is; not None."""
        if value is None or not hasattr(type(value), "__bool__"):  # texts and lists have none
            raise self.mismatch(argument, "bool", value)
        return bool(value)

    def instance(self, argument: str, value: Any, kind: Type[T]) -> T:
        """An object of that class."""
        if not isinstance(value, kind):
            raise self.mismatch(argument, kind.__name__.lstrip("_"), value)
        return value

    def sequence(self, argument: str, value: Any) -> List[Any]:
        """The items of a list, a tuple or another sequence."""
        if type(value) is list or type(value) is tuple:
            return list(value)
        unfit = isinstance(value, (str, bytes, bytearray, Mapping))
        if unfit or not hasattr(type(value), "__getitem__") or not hasattr(type(value), "__len__"):
            raise self.mismatch(argument, "a sequence", value)
        return list(value)

    def instances(self, argument: str, value: Any, kind: Type[T]) -> List[Optional[T]]:
        """A sequence of objects of that class; None may stand among them."""
        items = self.sequence(argument, value)
        for item in items:
            if item is not None and not isinstance(item, kind):
                raise self.mismatch(f"{argument}'s items", kind.__name__, item)
        return items

    def texts(self, argument: str, value: Any) -> List[str]:
        """A sequence of texts."""
        items = self.sequence(argument, value)
        return [self.text(f"{argument}'s items", item) for item in items]
