"""Names and numbers that nothing else has: what a test makes on a server or host that others use outlives the test."""

from itertools import count

_NUMBERS = count(1)


def new_number() -> int:
    """A number that no other call in this process gives."""
    return next(_NUMBERS)


def new_name(name: str) -> str:
    """The name with a new number."""
    return f"{name}-{new_number()}"
