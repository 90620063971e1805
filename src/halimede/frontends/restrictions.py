"""Which calls need a header to be served, and which headers become parameters of a request."""

import difflib
from collections.abc import Callable, Iterable
from functools import lru_cache
from hmac import compare_digest
from typing import Final, NamedTuple

import re2

from halimede.core.errors import InvalidArgumentError
from halimede.core.secrets import HIDDEN, read_secret, shown

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""Groups of calls that can be restricted, for HTTP and gRPC alike."""

PUBLIC: Final = "public"
"""The group of pages that tell nothing of models and requests: neither restrictions nor tokens apply to them."""

GRPC_HEADER_PREFIX = "triton-grpc-protocol-"
"""What the name of a header in `--grpc-restricted-protocol` is prefixed by on the wire."""

RESERVED_PARAMETERS = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
"""Request parameters with a meaning of their own, which no header may set."""

RESERVED_PREFIX = "triton_"
"""How parameters begin that clients may not set."""


_REMEMBERED_NAMES: Final = 256
"""Names of headers of which is known whether they are forwarded; clients send the same ones again and again."""

_FLAGS: Final = {"api": "--http-restricted-api", "protocol": "--grpc-restricted-protocol"}


class Restriction(NamedTuple):
    """The header that opens a category of calls.

    Attributes:
        header: its name in lower case.
        value: the value that it must have.
        name: its name as it was given, for error texts.
    """

    header: str
    value: str
    name: str

    def opened_by(self, given: str | bytes | None) -> bool:
        """Whether this value of the header opens the calls; the time taken reveals nothing of the right one."""
        if given is None:
            return False
        sent = given.encode("utf-8", "replace") if isinstance(given, str) else given
        return compare_digest(sent, self.value.encode("utf-8", "replace"))


HeaderPattern = Callable[[str], bool]
"""Whether a header of this name, as it was sent, becomes a parameter."""


def parse_restrictions(
    options: Iterable[str], kind: str = "api", header_prefix: str = ""
) -> dict[str, Restriction]:
    """Category → restriction, of the values of a repeatable command-line option.

    Args:
        options: each ``<category>[,<category>…]:<header>=<value>``; the value may be ``file:PATH`` or ``env:NAME``.
        kind: what error texts call a category: ``api`` or ``protocol``.
        header_prefix: what the header's name is prefixed by on the wire.

    Raises:
        InvalidArgumentError: an option is malformed, names an unknown category, or one named before, or its value
            cannot be read. The text repeats nothing of what may be a secret.
    """
    restrictions: dict[str, Restriction] = {}
    for option in options:
        categories, colon, header = option.partition(":")
        name, equals, given = header.partition("=")
        flag = _FLAGS[kind]
        if not (categories and colon and name.strip() and equals and given):
            msg = (
                f"{flag} option format is '<{kind}>[,<{kind}>…]:<header>=<value>'. "
                "What was given is not repeated here, as it may hold a secret"
            )
            raise InvalidArgumentError(msg)
        try:
            value = read_secret(given)
        except ValueError as error:
            msg = f"{flag}: {error}"
            raise InvalidArgumentError(msg) from None
        for place, category in enumerate((text.strip() for text in categories.split(",")), 1):
            if category not in CATEGORIES:
                raise InvalidArgumentError(f"{flag}: {_unknown_category(place, category, kind)}")
            if category in restrictions:
                msg = f"{flag}: restricted {kind} '{category}' can not be specified in multiple config groups"
                raise InvalidArgumentError(msg)
            full_name = header_prefix + name.strip()
            restrictions[category] = Restriction(full_name.lower(), value, full_name)
    return restrictions


def _unknown_category(place: int, category: str, kind: str) -> str:
    """What to say of a category that there is not, without repeating it: where a value is malformed, it may be one."""
    nearest = difflib.get_close_matches(category, CATEGORIES, n=1)
    hint = f"; the nearest is '{nearest[0]}'" if nearest else ""
    return f"unknown restricted {kind} in place {place}{hint}; known are {', '.join(CATEGORIES)}"


def without_secret(option: str) -> str:
    """The value of such an option, as it may be shown."""
    front, equals, value = option.partition("=")
    return f"{front}={shown(value)}" if equals else HIDDEN


def compile_forward_pattern(pattern: str) -> HeaderPattern | None:
    """What finds the headers to forward: a regular expression in RE2's syntax; None for an empty one.

    It may match anywhere in the name. The case does not matter unless the pattern says ``(?-i)``.

    Raises:
        InvalidArgumentError: it is not a regular expression of RE2.
    """
    if not pattern:
        return None
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        search = re2.compile(pattern, options).search
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        msg = f"header forward pattern '{pattern}' is not a regular expression of RE2: {text}"
        raise InvalidArgumentError(msg) from None
    return lru_cache(_REMEMBERED_NAMES)(lambda name: search(name) is not None)


def forwarded_headers(headers: Iterable[tuple[str, str]], forwarded: HeaderPattern) -> dict[str, str]:
    """The headers that `forwarded` finds, as parameters.

    Args:
        headers: names as they were sent, and values.
        forwarded: what finds them.

    Raises:
        InvalidArgumentError: one has the name of a parameter that is reserved.
    """
    found = {name: value for name, value in headers if forwarded(name)}
    for name in found:
        if name.lower() in RESERVED_PARAMETERS or name.lower().startswith(RESERVED_PREFIX):
            msg = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
            raise InvalidArgumentError(msg)
    return found
