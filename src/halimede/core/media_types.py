"""Media types as RFC 9110 reads them: letter case and spaces do not matter, and parameters may be quoted."""

import re
from typing import Final

_SPACE: Final = " \t\n\v\f\r"
"""White space; Python also counts control characters such as the unit separator."""
_PARAMETER: Final = re.compile(r';\s*([^\s;="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))', re.ASCII | re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def essence(media_type: str) -> str:
    """Type and subtype in lower case, without parameters."""
    return media_type.partition(";")[0].strip(_SPACE).lower()


def parameter(media_type: str, name: str) -> str | None:
    """The first parameter of that name, which is in lower case; None if there is none."""
    for match in _PARAMETER.finditer(media_type):
        if match[1].lower() == name:
            return match[3].strip(_SPACE) if match[2] is None else _ESCAPED.sub(r"\1", match[2])
    return None
