r"""Patterns of AWS's service models, which are of Java's syntax, for Python.

Java's classes such as ``\d`` and ``\w``, and its POSIX classes such as ``\p{Print}``, are those of ASCII.
"""

import re
from functools import lru_cache
from typing import Any

import regex

_POSIX = {"ASCII": r"\x00-\x7f", "Print": r"\x20-\x7e", "Alnum": "a-zA-Z0-9"}

_CLASS = re.compile(rf"\\p{{({'|'.join(_POSIX)})}}")

_SURROGATES = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How Java's patterns name the characters beyond the first 65,536."""


@lru_cache(None)
def compile_pattern(text: str) -> Any:
    """The pattern, compiled; a value satisfies it if the whole of it matches."""

    def characters(match: re.Match[str]) -> str:
        inside = text.rfind("[", 0, match.start()) > text.rfind("]", 0, match.start())
        return _POSIX[match[1]] if inside else f"[{_POSIX[match[1]]}]"

    python = _CLASS.sub(characters, text)
    python = python.replace(_SURROGATES, r"\U00010000-\U0010FFFF").replace(r"\z", r"\Z")
    return regex.compile(python, 0 if r"\p{" in python else regex.ASCII)
