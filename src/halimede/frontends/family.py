"""What describes a metric."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, type and the line of help that is scraped with it."""

    name: str
    type: str
    help: str
