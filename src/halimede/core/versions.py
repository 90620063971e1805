"""Versions of models as clients write them."""

import re
from typing import Final

from halimede.core.errors import InvalidArgumentError

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64_MAX: Final = (1 << 63) - 1


def parse_version(text: str) -> int:
    """The version that a client's text names, -1 for none.

    Raises:
        InvalidArgumentError: not a positive integer.
    """
    if not text:
        return -1
    if not _INTEGER.fullmatch(text):
        raise _bad_version(text, " (details: not an integer)")
    if len(text) > len(str(_INT64_MAX)) + 1 or int(text) > _INT64_MAX:
        raise _bad_version(text, " (details: out of range)")
    version = int(text)
    if version <= 0:
        raise _bad_version(text, "")
    return version


def _bad_version(text: str, details: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"failed to get model version from specified version string '{text[:100]}'{details}, "
        f"version should be an integral value > 0"
    )
