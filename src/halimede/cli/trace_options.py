"""`--trace-config`, and the deprecated flags that it replaces: which requests are traced, and where traces go."""

import difflib
from collections.abc import Iterable
from typing import Final, NoReturn

import click

from halimede.cli.options import ServeOptions
from halimede.engine.tracing.settings import (
    TENSORS,
    TIMESTAMPS,
    TraceConfig,
    TraceMode,
    TraceSettings,
    trace_levels,
)

_FLAG: Final = "--trace-config"
_LEVELS: Final = {
    **dict.fromkeys(("off", "false", "0"), ""),
    **dict.fromkeys(("timestamps", "min", "max", "on", "true", "1"), TIMESTAMPS),
    "tensors": TENSORS,
}
_NUMBERS: Final = {
    "rate": ("rate", 0, (1 << 32) - 1),
    "count": ("count", -1, (1 << 31) - 1),
    "log-frequency": ("log_frequency", 0, (1 << 32) - 1),
}
"""Setting → the field of `TraceSettings`, and its least and largest value."""

_SETTINGS: Final = {
    "": ("level", "rate", "count", "mode"),
    TraceMode.TRITON.value: ("file", "log-frequency"),
}
"""Mode → its settings, "" for those of both. Those of the mode opentelemetry are checked by what they are for."""

DEPRECATED: Final = {
    "trace_level": ("trace-level", "level=<OFF|TIMESTAMPS|TENSORS>"),
    "trace_rate": ("trace-rate", "rate=<rate value>"),
    "trace_count": ("trace-count", "count=<count value>"),
    "trace_file": ("trace-file", "triton,file=<filepath>"),
    "trace_log_frequency": ("trace-log-frequency", "triton,log-frequency=<log frequency value>"),
}
"""Attribute of a deprecated flag → its name, and what to give for `--trace-config` instead."""


def trace_config(options: ServeOptions) -> TraceConfig:
    """How tracing is set at the start. Where a deprecated flag says otherwise than `--trace-config`, the latter holds.

    Raises:
        click.UsageError: a value makes no sense; the text says what would be right.
    """
    levels = [_level("--trace-level", text) for text in options.trace_level]
    numbers = {
        "rate": options.trace_rate,
        "count": options.trace_count,
        "log_frequency": options.trace_log_frequency,
    }
    mode, file = TraceMode.TRITON, options.trace_file
    further: dict[str, dict[str, tuple[str, ...]]] = {each.value: {} for each in TraceMode}
    for entry in options.trace_config:
        of_mode, key, value = _split(entry)
        if key == "level":
            levels.append(_level(f"{_FLAG} level", value))
        elif key == "mode":
            mode = _mode(value)
        elif key == "file":
            file = value
        elif key in _NUMBERS:
            name, low, high = _NUMBERS[key]
            numbers[name] = _number(f"{_FLAG} {entry.partition('=')[0]}", value, low, high)
        else:
            given = further[of_mode]
            given[key] = (*given.get(key, ()), value)
    settings = TraceSettings(levels=trace_levels(levels), **numbers)
    return TraceConfig(mode, settings, file, further[mode.value])


def _split(entry: str) -> tuple[str, str, str]:
    """The mode, "" for none, the setting and its value."""
    front, _, value = entry.partition("=")
    mode, comma, key = front.rpartition(",")
    if comma:
        mode = _mode(mode).value
    if not (key and value):
        _refuse(f"{_FLAG} option format is '<trace mode>,<setting>=<value>'. Got {entry}")
    known = _SETTINGS.get(mode)
    if known is not None and key not in known:
        nearest = difflib.get_close_matches(key, known, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(known)}"
        if not mode and key in _SETTINGS[TraceMode.TRITON.value]:
            hint += f"; write triton,{key}"
        _refuse(f"{_FLAG}: there is no setting '{front}'{hint}")
    return mode, key, value


def _mode(text: str) -> TraceMode:
    try:
        return TraceMode(text.lower())
    except ValueError:
        _refuse(
            f'invalid value for trace mode option: {text}. Available options are "triton" and "opentelemetry"'
        )


def _level(flag: str, text: str) -> str:
    lowered = text.lower()
    if lowered not in _LEVELS:
        _refuse(
            f"{flag}: invalid value for trace level option: {text}; there are OFF, TIMESTAMPS and TENSORS"
        )
    return _LEVELS[lowered]


def _number(flag: str, text: str, low: int, high: int) -> int:
    try:
        number = int(text)
    except ValueError:
        _refuse(f"{flag}: '{text}' is not a whole number")
    if not low <= number <= high:
        _refuse(f"{flag}: {number} is out of range; it must be from {low} to {high}")
    return number


def _refuse(text: str) -> NoReturn:
    raise click.UsageError(text)


def deprecation_remarks(given: Iterable[str]) -> list[str]:
    """What tritonserver says of the deprecated flags that are given, by their attributes."""
    return [
        f"Warning: '--{name}' has been deprecated and will be removed in future releases. Please use "
        f"'{_FLAG} {instead} instead."
        for attribute, (name, instead) in DEPRECATED.items()
        if attribute in given
    ]
