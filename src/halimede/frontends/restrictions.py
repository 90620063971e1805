"""Which calls need a header to be served, and which headers become parameters of a request."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from halimede.core.errors import InvalidArgumentError

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

GRPC_HEADER_PREFIX = "triton-grpc-protocol-"
"""What the name of a header in `--grpc-restricted-protocol` is prefixed by on the wire."""

RESERVED_PARAMETERS = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
"""Request parameters with a meaning of their own, which no header may set."""

RESERVED_PREFIX = "triton_"
"""How parameters begin that clients may not set."""


class Restriction(NamedTuple):
    """The header that opens a category of calls: its lower-case name, and its value."""

    header: str
    value: str


def parse_restrictions(
    options: Iterable[str], kind: str = "api", header_prefix: str = ""
) -> dict[str, Restriction]:
    """Category → restriction, of the values of a repeatable command-line option.

    Args:
        options: each ``<category>[,<category>…]:<header>=<value>``.
        kind: what error texts call a category: ``api`` or ``protocol``.
        header_prefix: what the header's name is prefixed by on the wire.

    Raises:
        InvalidArgumentError: an option is malformed, names an unknown category, or one named before.
    """
    restrictions: dict[str, Restriction] = {}
    for option in options:
        categories, colon, header = option.partition(":")
        name, equals, value = header.partition("=")
        if not (categories and colon and name.strip() and equals and value):
            msg = f"restricted {kind} '{option}' is not of the form <{kind}>[,<{kind}>…]:<header>=<value>"
            raise InvalidArgumentError(msg)
        for category in (text.strip() for text in categories.split(",")):
            if category not in CATEGORIES:
                msg = f"unknown restricted {kind} '{category}'; known are {', '.join(CATEGORIES)}"
                raise InvalidArgumentError(msg)
            if category in restrictions:
                msg = f"{kind} '{category}' can not be specified in multiple config groups"
                raise InvalidArgumentError(msg)
            restrictions[category] = Restriction(header_prefix + name.strip().lower(), value)
    return restrictions


def compile_forward_pattern(pattern: str) -> "re.Pattern[str] | None":
    """What finds the headers to forward, in any case and anywhere in the name; None for an empty pattern.

    Raises:
        InvalidArgumentError: it is not a regular expression.
    """
    if not pattern:
        return None
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        msg = f"header forward pattern '{pattern}' is not a regular expression: {error}"
        raise InvalidArgumentError(msg) from None


def forwarded_headers(headers: Mapping[str, str], pattern: "re.Pattern[str]") -> dict[str, str]:
    """The headers whose names `pattern` finds, as parameters; names are lower-case.

    Raises:
        InvalidArgumentError: one has the name of a parameter that is reserved.
    """
    found = {name: value for name, value in headers.items() if pattern.search(name)}
    for name in found:
        if name in RESERVED_PARAMETERS or name.startswith(RESERVED_PREFIX):
            msg = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
            raise InvalidArgumentError(msg)
    return found
