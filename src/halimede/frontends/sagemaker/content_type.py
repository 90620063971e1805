"""The media type of tensors as bytes, which also says how many bytes of JSON come before them."""

import re
from collections.abc import Mapping
from typing import Final

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.memo import Memo
from halimede.frontends.http.response_layout import Headers

BINARY: Final = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""What the number of bytes follows."""

_MAX_MEMO_TEXT: Final = 128
_INT32: Final = range(-(1 << 31), 1 << 31)
_NUMBER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)")
"""A number as C's `stoi` reads it, whatever follows it."""


def json_length(headers: Mapping[str, str]) -> str | None:
    """The digits that say how many bytes of JSON a body begins with, None if it is nothing but JSON.

    Only the media type of tensors as bytes says so; any other says nothing, right or wrong.

    Raises:
        InvalidArgumentError: something stands before that media type, or no number after it.
    """
    text = headers.get("content-type")
    if text is None:
        return None
    return _MEMO[text] if len(text) <= _MAX_MEMO_TEXT else read_length(text)


def read_length(content_type: str) -> str | None:
    """As `json_length`, of a Content-Type.

    Raises:
        InvalidArgumentError: as of `json_length`.
    """
    position = content_type.find(BINARY)
    if position < 0:
        return None
    if position > 0:
        msg = f"expect MIME type for binary data starts with '{BINARY}', got: {content_type}"
        raise InvalidArgumentError(msg)
    text = content_type[len(BINARY) :]
    match = _NUMBER.match(text)
    if match is None or len(match[2]) > len("2147483648") or int(match[1] + match[2]) not in _INT32:
        msg = f"Unable to parse inference header size, got: {text}; expected a number of bytes"
        raise InvalidArgumentError(msg)
    return str(int(match[1] + match[2]))


_MEMO: Final = Memo(read_length)


def label(json_bytes: int) -> tuple[str, Headers]:
    """The label of a response with tensors as bytes after so many bytes of JSON."""
    return f"{BINARY}{json_bytes}", ()
