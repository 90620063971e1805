"""Enumerations of models, which print as those of the original do."""

import enum


class NamedInt(enum.IntEnum):
    """A number that is printed by its name: `LogLevel.INFO`, in f-strings too."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, form: str) -> str:
        return format(str(self), form)
