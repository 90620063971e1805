"""Protobuf's encoding, as far as OpenTelemetry's messages need it.

The protobuf library would take several times as long, most of it for objects that are not looked at.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

Value = bool | int | float | str

_DOUBLE: Final = Struct("<d")


def varint(number: int) -> bytes:
    """A whole number; negative ones as those of 64 bits."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def field(number: int, content: bytes) -> bytes:
    """A field, with a number below 16, that is bytes, a text or a message."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def whole_number(number: int, value: int) -> bytes:
    """A field, with a number below 16, that is a whole number or a member of an enumeration."""
    return bytes((number << 3,)) + varint(value)


def key_value(key: str, value: Value) -> bytes:
    """A message KeyValue."""
    if isinstance(value, str):
        encoded = field(1, value.encode())
    elif isinstance(value, bool):
        encoded = whole_number(2, value)
    elif isinstance(value, int):
        encoded = whole_number(3, value)
    else:
        encoded = b"\x21" + _DOUBLE.pack(value)
    return field(1, key.encode()) + field(2, encoded)


def key_values(number: int, pairs: Mapping[str, Value]) -> bytes:
    """A field for each pair, each a message KeyValue."""
    return b"".join([field(number, key_value(key, value)) for key, value in pairs.items()])


Place = tuple[bytes, str]
"""What comes before a value, and the value's format as `struct` has it: ``16s`` for bytes, ``Q`` for fixed64."""


class Layout:
    """A message of which only some values differ, and none of these in its size.

    Args:
        places: of the values.
        rest: what comes after the last.

    Attributes:
        size: of the message, in bytes.
    """

    __slots__ = ("_pack", "_parts", "size")

    def __init__(self, places: Sequence[Place], rest: bytes) -> None:
        formats = [f"{len(before)}s{value}" for before, value in places]
        whole = Struct(f"<{''.join(formats)}{len(rest)}s")
        self.size = whole.size
        self._pack = whole.pack
        self._parts: list[bytes | int] = [b""] * (2 * len(places) + 1)
        self._parts[::2] = [*(before for before, _ in places), rest]

    def fill(self, values: Sequence[bytes | int]) -> bytes:
        """The message with these values in their places."""
        parts = self._parts.copy()
        parts[1::2] = values
        return self._pack(*parts)
