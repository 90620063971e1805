"""Filter patterns of CloudWatch Logs: what a line must have in it to be found.

``ERROR "out of memory"``        all of the terms, in any order
``?ERROR ?WARN``                 one of the terms at least
``ERROR -Exiting``               without the terms after a hyphen
``{ $.level = "error" }``        a line that is a JSON object whose properties fit (`json_patterns`)
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.json_patterns import PatternError, parse_json_pattern

Matches = Callable[[str], bool]
"""Whether a line is found."""

_TERM = re.compile(r'\s*([-?]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))')
_ESCAPED = re.compile(r"\\(.)")
_MAX_SHOWN = 256

_OTHER_KINDS = {"[": "patterns of columns ([…])", "%": "regular expressions (%…%)"}


@dataclass(slots=True)
class _Terms:
    """The terms of a pattern, by what they ask for.

    Attributes:
        all: must be in a line.
        any: one of them must be, if there are any.
        none: must not be.
    """

    all: list[str] = field(default_factory=list)
    any: list[str] = field(default_factory=list)
    none: list[str] = field(default_factory=list)

    def match(self, line: str) -> bool:
        return (
            all(term in line for term in self.all)
            and (not self.any or any(term in line for term in self.any))
            and not any(term in line for term in self.none)
        )


def parse_filter_pattern(pattern: str) -> Matches:
    """What tells whether a line is found.

    Raises:
        ApiError: it is no pattern, or one of a kind that this version does not have.
    """
    text = pattern.strip()
    try:
        if text.startswith("{"):
            return parse_json_pattern(text)
        return _terms(text).match
    except PatternError as error:
        msg = f"Invalid filter pattern '{pattern[:_MAX_SHOWN]}': {error}"
        raise ApiError("InvalidParameterException", msg) from None


def _terms(text: str) -> _Terms:
    terms = _Terms()
    kinds: dict[str, list[str]] = {"": terms.all, "?": terms.any, "-": terms.none}
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise PatternError("a quotation mark has no other one")
        sign, quoted, plain = match.groups()
        if plain is not None and plain[0] in _OTHER_KINDS:
            raise PatternError(
                f"{_OTHER_KINDS[plain[0]]} are not available in this version; give terms or {{ $.… }}"
            )
        kinds[sign].append(plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        position = match.end()
    return terms
