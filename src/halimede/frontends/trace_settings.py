"""The settings of tracing as clients read and change them (`/v2/trace/setting`, `TraceSetting`)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from halimede.core.errors import (
    HalimedeError,
    InvalidArgumentError,
    NotLoadedError,
    UnsupportedError,
)
from halimede.engine.engine import Engine
from halimede.engine.tracing.settings import TRACE_LEVELS, TraceMode, trace_levels

FILE: Final = "trace_file"
LEVEL: Final = "trace_level"
COUNT: Final = "trace_count"
_NUMBERS: Final = {
    "trace_rate": ("rate", 0, (1 << 32) - 1),
    COUNT: ("count", -1, (1 << 31) - 1),
    "log_frequency": ("log_frequency", 0, (1 << 32) - 1),
}
"""Name → the field of `TraceSettings`, and its least and largest value."""

NUMBERS: Final = tuple(_NUMBERS)
"""Settings that are numbers, which clients write as strings."""

_OFF: Final = "OFF"
_SHOWN: Final = 64
"""Characters of a number that errors show; none that is in range has more."""

_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+")


def document(engine: Engine, model_name: str) -> list[tuple[str, str | list[str]]]:
    """The settings that hold, by the protocol's names, in its order; a name may come more than once.

    Args:
        engine: whose they are.
        model_name: the model for which they hold; "" for all that have none of their own.

    Raises:
        InvalidArgumentError: no such model is loaded.
    """
    if model_name:
        _check_loaded(engine, model_name)
    tracing = engine.tracing
    current = tracing.settings(model_name)
    settings = current.settings
    members: list[tuple[str, str | list[str]]] = [
        (LEVEL, list(settings.levels) or [_OFF]),
        ("trace_rate", str(settings.rate)),
        (COUNT, str(current.left)),
    ]
    if tracing.config.mode is TraceMode.TRITON:
        members += [("log_frequency", str(settings.log_frequency)), (FILE, tracing.config.file)]
    return [*members, ("trace_mode", tracing.config.mode.value), *tracing.options]


def change(engine: Engine, model_name: str, values: Mapping[str, Sequence[str] | None]) -> None:
    """Change settings, all of them or, on an error, none. Unknown names are ignored, as tritonserver does.

    Args:
        engine: whose they are.
        model_name: the model for which they shall hold; "" for all that have none of their own.
        values: name → what was given; None to take a setting back.

    Raises:
        InvalidArgumentError: no such model is loaded, a value is wrong, or nothing could be traced with them.
        UnsupportedError: the file was to be changed.
    """
    if model_name:
        _check_loaded(engine, model_name)
    if FILE in values:
        raise UnsupportedError("trace file location can not be updated through network protocol")
    changes: dict[str, Any] = {}
    if LEVEL in values:
        changes |= _levels(values[LEVEL])
    for name, (attribute, low, high) in _NUMBERS.items():
        if name in values:
            value = values[name]
            changes[attribute] = None if value is None else _number(name, value, low, high)
    engine.tracing.change(changes, model_name)


def _check_loaded(engine: Engine, name: str) -> None:
    try:
        engine.find(name)
    except NotLoadedError:
        return  # there is one, which is loaded on demand
    except HalimedeError:
        raise InvalidArgumentError(f"Request for unknown model : {name}") from None


def _levels(given: Sequence[str] | None) -> dict[str, Any]:
    if given is None:
        return {"levels": None}
    if _OFF in given and len(given) > 1:
        raise InvalidArgumentError("Expect only one trace level 'OFF' is specified")
    unknown = [level for level in given if level not in (_OFF, *TRACE_LEVELS)]
    if unknown:
        known = ", ".join(TRACE_LEVELS)
        raise InvalidArgumentError(
            f"unknown trace level '{unknown[0][:_SHOWN]}'; known are {known} and {_OFF}"
        )
    levels = trace_levels(given)
    return {"levels": levels} if levels or _OFF in given else {}


def _number(name: str, given: Sequence[str], low: int, high: int) -> int:
    if len(given) != 1:
        raise InvalidArgumentError(f"expect only 1 value for '{name}'")
    text = given[0]
    shown = text[:_SHOWN]
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"Unable to parse '{name}', got: {shown}")
    number = int(text) if len(text) <= _SHOWN else high + 1
    if name == COUNT and -(1 << 31) <= number < low:
        raise InvalidArgumentError(f"Unable to parse '{name}'. Expecting value >= -1, got:{shown}")
    if not low <= number <= high:
        raise InvalidArgumentError(
            f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {shown}"
        )
    return number
