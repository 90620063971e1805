"""Versions of models as clients write them and as directories are named."""

import re
from typing import Final

from halimede.core.errors import InvalidArgumentError

_INTEGER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")  # what C++'s stol takes; it ignores the rest
_MAX_DIGITS: Final = 100
_INT64: Final = range(-(1 << 63), 1 << 63)


class NegativeVersionError(InvalidArgumentError):
    """A version is negative."""


def version_number(name: str) -> int | None:
    """The version of a directory of that name: a positive integer without leading zero; else None."""
    if not (name.isascii() and name.isdecimal()) or name.startswith("0") or len(name) > 19:
        return None
    number = int(name)
    return number if number in _INT64 else None


def parse_version(text: str) -> int:
    """The version that a client's text names, -1 for none. No model has version 0.

    As in Triton, white space before the number and anything after it are ignored.

    Raises:
        NegativeVersionError: it is negative.
        InvalidArgumentError: it is no number, or one of more than 64 bits.
    """
    if not text:
        return -1
    integer = _INTEGER.match(text)
    if integer is None or len(integer[1]) > _MAX_DIGITS or int(integer[1]) not in _INT64:
        raise InvalidArgumentError(_complaint(text, " (details: stol)"))
    version = int(integer[1])
    if version < 0:
        raise NegativeVersionError(_complaint(text, ""))
    return version


def _complaint(text: str, details: str) -> str:
    return (
        f"failed to get model version from specified version string '{text[:100]}'{details}, "
        f"version should be an integral value > 0"
    )
