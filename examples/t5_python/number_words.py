"""Numbers below 1000 in English and German words: sentence pairs that need no download, and whose truth is known.

It is a translation all the same: German says `siebenundzwanzig`, seven-and-twenty, and writes all of it as one word.
"""

import random

NUMBERS = 1000
"""How many there are: 0 to 999."""

PREFIX = "translate English to German: "
"""What T5 reads before the text, to know what to do with it."""

_SEED = 0

_ENGLISH = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN = (
    *(
        "null",
        "eins",
        "zwei",
        "drei",
        "vier",
        "fünf",
        "sechs",
        "sieben",
        "acht",
        "neun",
        "zehn",
        "elf",
        "zwölf",
    ),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
)
_GERMAN_TENS = (
    "",
    "",
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
)


def english(number: int) -> str:
    """The number, such as `two hundred thirty-one`."""
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{_ENGLISH[hundreds]} hundred {english(rest) if rest else ''}".rstrip()
    tens, ones = divmod(number, 10)
    if number < len(_ENGLISH):
        return _ENGLISH[number]
    return f"{_ENGLISH_TENS[tens]}-{_ENGLISH[ones]}" if ones else _ENGLISH_TENS[tens]


def german(number: int) -> str:
    """The number, such as `zweihunderteinunddreißig`."""
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{_joined(hundreds)}hundert{german(rest) if rest else ''}"
    tens, ones = divmod(number, 10)
    if number < len(_GERMAN):
        return _GERMAN[number]
    return f"{_joined(ones)}und{_GERMAN_TENS[tens]}" if ones else _GERMAN_TENS[tens]


def _joined(digit: int) -> str:
    """A digit before `und` or `hundert`."""
    return "ein" if digit == 1 else _GERMAN[digit]


def held_out(numbers: int = NUMBERS) -> set[int]:
    """The numbers below that one that training does not see: a tenth of them.

    All are like `two hundred thirty-one`: there are enough others to learn from how they are made.
    """
    compounds = [one for one in range(100, numbers) if one % 100 > 20 and one % 10]
    return set(random.Random(_SEED).sample(compounds, min(numbers // 10, len(compounds))))
