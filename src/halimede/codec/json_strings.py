"""The strings of a large BYTES tensor as JSON."""

from halimede.core.string_layout import layout_of
from halimede.core.tensors import Buffer

_QUOTE, _COMMA, _BRACKET, _BACKSLASH, _SPACE, _NUL = b'",[\\ \0'


def json_of_texts(data: Buffer, elements: int) -> bytes | None:
    """The JSON array of the strings, if they are many, and none needs an escape.

    None otherwise, and if one is not UTF-8. In place of each length comes what stands between two strings.
    """
    layout = layout_of(data, elements)
    if layout is None:
        return None
    text, starts = layout.data.copy(), layout.starts
    for offset in range(4):
        text[starts + offset] = _SPACE
    if text.min() < _SPACE or (text == _QUOTE).any() or (text == _BACKSLASH).any():
        return None
    for offset, character in enumerate((_NUL, _QUOTE, _COMMA, _QUOTE)):
        text[starts + offset] = character
    text[:4] = _NUL, _NUL, _BRACKET, _QUOTE
    joined = text.tobytes().translate(None, b"\0") + b'"]'
    try:
        joined.decode()  # each is UTF-8 then, as ASCII stands between them
    except UnicodeDecodeError:
        return None
    return joined
