"""What errors add about names that do not exist: the nearest one, and which there are."""

from collections.abc import Collection
from difflib import get_close_matches
from heapq import nsmallest
from typing import Final

_MOST_NAMES: Final = 10
_MOST_LOOKED_AT: Final = 1000
_MOST_COMPARED: Final = 20
_LONGEST_NAME: Final = 100


def names_hint(name: str, known: Collection[str], what: str) -> str:
    """A sentence or two to follow an error about an unknown name; "" if nothing is known. Bounded in time and length.

    Args:
        name: the unknown name.
        known: the names that there are.
        what: what they are, in the plural, as ``inputs``.
    """
    if not known:
        return ""
    names = sorted(known)
    shown = ", ".join(_shortened(each) for each in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    near = _nearest(name, names)
    hint = f". Did you mean '{_shortened(near)}'?" if near else "."
    return f"{hint} The {what} are: {shown}{more}"


def _nearest(name: str, names: list[str]) -> str:
    """The name that was probably meant, "" if none is close."""
    if len(name) > _LONGEST_NAME:
        return ""
    folded = name.casefold()
    for each in names:
        if each.casefold() == folded:
            return each
    if len(names) > _MOST_LOOKED_AT:
        return ""
    alike = nsmallest(_MOST_COMPARED, names, lambda each: _distance(each, name))
    return next(iter(get_close_matches(name, alike, 1)), "")


def _distance(one: str, other: str) -> int:
    """How many characters differ in their places: quickly told, and enough to find candidates."""
    return 2 * abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other, strict=False))


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
