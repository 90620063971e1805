"""Versions of models in gRPC requests."""

from halimede.core import versions
from halimede.core.errors import InvalidArgumentError
from halimede.core.versions import NegativeVersionError


def parse_version(text: str) -> int:
    """The version that a request names, -1 for none.

    Raises:
        InvalidArgumentError: it is no number, negative, or of more than 64 bits.
    """
    try:
        return versions.parse_version(text)
    except NegativeVersionError:
        msg = f"invalid model version specified '{text[:100]}' , version should be an integral value > 0"
        raise InvalidArgumentError(msg) from None
