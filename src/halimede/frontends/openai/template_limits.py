"""What the rendering of a chat template may take: templates are programs, and conversations may be of any size."""

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from time import thread_time
from typing import Any, Final

from halimede.core.errors import InvalidArgumentError

_NUMBER: Final = 10_000_000
"""The largest number that functions and filters get, which may be a width."""

_ANY_NUMBER: Final = frozenset(("range", "default", "d", "int", "float", "format", "format_map"))
"""Functions and filters that may get a larger one. Ranges and forms have limits of their own."""

_BITS: Final = 4096
"""Of the results of multiplications and powers."""

_DIGITS: Final = re.compile(r"\d{8}")
_STAR: Final = re.compile(r"%[#0\- +\d]*\.?\*")
"""A width, or a number of digits, that is one of the numbers among the arguments."""
_NESTED: Final = re.compile(r"\{[^{}]*\{")
"""A part of a form that is an argument, or part of one, which may be a width."""
_KEPT_TIMES: Final = 16
"""All texts that are made on the way may together have so many times as many characters as a prompt."""


class TemplateLimitError(InvalidArgumentError):
    """The rendering takes more than it may."""


class TooSlowForLoopError(Exception):
    """The rendering takes more than `ON_LOOP`, and is to be done on a thread. Never seen by clients."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """The limits of one rendering.

    Attributes:
        seconds: how long it may compute; time in which others do is not counted.
        steps: rounds of loops, calls and filters.
        characters: of the prompt, and of each text on the way.
    """

    seconds: float
    steps: int
    characters: int


USUAL: Final = TemplateLimits(2.0, 5_000_000, 64 << 20)
"""Of each rendering."""

ON_LOOP: Final = TemplateLimits(0.005, 2000, 1 << 20)
"""Of a rendering for which the server's loop waits. One that needs more is begun again on a thread."""


class Budget:
    """What is left for one rendering.

    Args:
        limits: what there is at the beginning.
    """

    __slots__ = ("_end", "_left", "_limits", "_made")

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._end = thread_time() + limits.seconds
        self._left = limits.steps
        self._made = 0

    def step(self) -> None:
        """Take a step."""
        self._left -= 1
        if self._left < 0:
            raise TemplateLimitError(f"the chat template takes more than {self._limits.steps} steps")
        if not self._left & 63 and thread_time() > self._end:
            self._refuse_time()

    def made(self, size: int) -> None:
        """A text or a list of this size is about to be made, or was."""
        self._made += size
        if size > self._limits.characters or self._made > self._limits.characters * _KEPT_TIMES:
            msg = f"the chat template makes texts of more than {self._limits.characters} characters"
            raise TemplateLimitError(msg)
        if thread_time() > self._end:
            self._refuse_time()

    def _refuse_time(self) -> None:
        raise TemplateLimitError(f"the chat template takes more than {self._limits.seconds:g} s")

    def result(self, value: Any) -> Any:
        """The result of a function, counted if it is a text or a list."""
        if isinstance(value, str | list | tuple):
            self.made(len(value))
        return value

    def operate(self, operator: str, left: Any, right: Any) -> None:
        """An operation is about to be done."""
        self.step()
        if operator == "%":
            if isinstance(left, str):
                self.format(left, right if isinstance(right, tuple) else (right,))
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() + right.bit_length()
            if operator == "**":
                bits = left.bit_length() * max(0, right)
            if bits > _BITS:
                raise TemplateLimitError(f"the chat template makes numbers of more than {_BITS} bits")
        elif operator == "*":
            sized, times = (right, left) if isinstance(left, int) else (left, right)
            if hasattr(sized, "__len__") and isinstance(times, int):
                self.made(len(sized) * max(0, times))
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            self.made(len(left) + len(right))

    def call(self, name: str, owner: Any, arguments: Iterable[Any]) -> None:
        """A function, or a method of `owner`, is about to be called with these arguments."""
        self.step()
        given = [*arguments]
        if name not in _ANY_NUMBER:
            for each in given:
                if isinstance(each, int) and abs(each) > _NUMBER:
                    raise TemplateLimitError(f"the chat template calls '{name}' with more than {_NUMBER}")
        if not isinstance(owner, str):
            return
        if name == "format":
            self.format(owner, given)
        elif name == "format_map":
            self.format(owner, given[0].values() if given and isinstance(given[0], dict) else ())
        elif name == "replace" and len(given) > 1 and isinstance(given[0], str):
            self.made(len(owner) + owner.count(given[0]) * len(str(given[1])))
        elif name == "join" and given and isinstance(given[0], list | tuple):
            self.made(sum(len(each) + len(owner) for each in given[0] if isinstance(each, str)))
        elif name == "expandtabs":
            self.made(owner.count("\t") * max([8, *(each for each in given if isinstance(each, int))]))

    def format(self, form: str, arguments: Iterable[Any]) -> None:
        """Something is about to be written in a form, which may have a width."""
        self.made(len(form))
        given = [*arguments]
        numbers = [each for each in given if isinstance(each, int)]
        wide = (_STAR.search(form) and any(map(_may_be_wide, numbers))) or (
            _NESTED.search(form) and any(map(_may_be_wide, given))
        )
        if wide or _DIGITS.search(form):
            raise TemplateLimitError(f"the chat template formats with a width of more than {_NUMBER}")


def _may_be_wide(value: Any) -> bool:
    """Whether a value may be a width, or have one in it, that is too large."""
    if isinstance(value, int):
        return abs(value) > _NUMBER
    if isinstance(value, str):
        return _DIGITS.search(value) is not None
    return not isinstance(value, float | None)


class _Current(threading.local):
    """The budget of the rendering that this thread is doing."""

    budget = Budget(USUAL)


CURRENT: Final = _Current()
