"""Sizes as `--model-memory-budget` takes them: how much memory models, or request bodies, may take together."""

import re

from halimede.core.memory import memory_limit

DEFAULT_SHARE = 0.8
"""Of the memory that the server may use; the rest is for the server itself, requests, and what models need to run."""

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)")
_FORMS = (
    "a number of bytes (2GiB, 500MB, 1073741824) or a share of the memory that the server may use (80%, 0.8)"
)


def parse_budget(text: str) -> int | float:
    """The budget that a text says: bytes as an int, or a share of the memory as a float between 0 and 1.

    Raises:
        ValueError: it says none; the text tells what would be right.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a budget; it must be {_FORMS}")
    number, unit = float(found[1]), found[2]
    if unit == "%" or (not unit and "." in found[1]):
        share = number / 100 if unit else number
        if not 0 < share <= 1:
            raise ValueError(f"'{text}' is out of range; a share must be above 0 and at most 100% or 1.0")
        return share
    if unit not in _UNITS:
        units = ", ".join(filter(None, _UNITS))
        raise ValueError(f"'{text}' has the unit '{unit}', which is none of {units} and %")
    size = int(found[1]) if number.is_integer() and "." not in found[1] else number
    size = int(size * _UNITS[unit])
    if size < 1:
        raise ValueError(f"'{text}' leaves no memory; it must be {_FORMS}")
    return size


def budget_bytes(budget: int | float) -> int:
    """The budget in bytes.

    Raises:
        ValueError: it is a share of something that is not known.
    """
    if isinstance(budget, int):
        return budget
    limit = memory_limit()
    if not limit:
        raise ValueError("this system does not tell how much memory there is; give the budget in bytes")
    return int(budget * limit)


def human(size: int) -> str:
    """A number of bytes for people, as `1.5 GiB`."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
