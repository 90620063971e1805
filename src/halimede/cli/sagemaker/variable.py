"""What an environment variable of a container is."""

from dataclasses import dataclass
from typing import Any

from halimede.cli.settings import TEXT, Kind


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable.

    Attributes:
        name: its name.
        kind: the kind of its value.
        default: what holds without it, as the page shows it; "" for nothing.
        effect: what it does, in a sentence or two; why it does nothing, if it does nothing here.
        flag: the flag of `halimede serve` that gets its value; "" if it is no flag.
        works: whether it does something here.
    """

    name: str
    kind: Kind[Any]
    default: str
    effect: str
    flag: str = ""
    works: bool = True


def idle(name: str, why: str) -> Variable:
    """A variable that does nothing here."""
    return Variable(name, TEXT, "", why, works=False)
