"""How large JSON is that is read elsewhere (`decoders`), as whoever reads it holds Python's lock.

Numbers take 1 ms a megabyte, texts and whatever simdjson does not read 5 to 15; to hand a megabyte on takes 1.5 ms.
"""

from typing import Final

from halimede.codec.json_numbers import are_numbers

LARGE: Final = 262_144
LARGE_NUMBERS: Final = 4_194_304
"""Bytes of JSON, and of JSON that is mostly numbers, that take about 4 ms; more of them are read elsewhere."""


def is_large(text: memoryview) -> bool:
    """Whether JSON should be read elsewhere."""
    if not LARGE < len(text) <= LARGE_NUMBERS:
        return len(text) > LARGE
    return not are_numbers(text)
