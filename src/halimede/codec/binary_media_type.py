"""Media types of tensors as bytes, which also say how many bytes of JSON come before them."""

import re
from collections.abc import Mapping
from typing import Final

from halimede.core.errors import InvalidArgumentError
from halimede.core.media_types import essence, parameter
from halimede.core.memo import Memo

_MAX_MEMO_TEXT: Final = 128
_INT32: Final = range(-(1 << 31), 1 << 31)
_PARAMETER: Final = "json-header-size"
_NOTHING: Final = "None"
"""What clients in Python write of a request without tensors as bytes, for which `tritonclient` returns no length."""
_NUMBER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)")
"""A number as C's `stoi` reads it, whatever follows it."""


class BinaryMediaType:
    """A media type whose parameter `json-header-size` is the number of bytes.

    Args:
        start: what the number follows in the shortest form.
    """

    def __init__(self, start: str) -> None:
        self._start = start
        self._essence = essence(start)
        self._memo = Memo(self.read_length)

    def json_length(self, headers: Mapping[str, str]) -> str | None:
        """The digits that say how many bytes of JSON a body begins with, None if it is nothing but JSON.

        Only this media type says so; any other says nothing, right or wrong.

        Raises:
            InvalidArgumentError: something stands before that media type, or no number after it.
        """
        text = headers.get("content-type")
        if text is None:
            return None
        return self._memo[text] if len(text) <= _MAX_MEMO_TEXT else self.read_length(text)

    def read_length(self, content_type: str) -> str | None:
        """As `json_length`, of a Content-Type.

        Raises:
            InvalidArgumentError: as of `json_length`.
        """
        if essence(content_type) != self._essence:
            if self._start in content_type:
                msg = f"expect MIME type for binary data starts with '{self._start}', got: {content_type}"
                raise InvalidArgumentError(msg)
            return None
        text = parameter(content_type, _PARAMETER)
        if text is None or text == _NOTHING:
            return None
        match = _NUMBER.match(text)
        if match is None or len(match[2]) > len("2147483648") or int(match[1] + match[2]) not in _INT32:
            msg = f"Unable to parse inference header size, got: {text}; expected a number of bytes"
            raise InvalidArgumentError(msg)
        return str(int(match[1] + match[2]))
