"""The JSON of a request to `/v2/logging`."""

from typing import Any, Final

from halimede.core.errors import InvalidArgumentError, UnavailableError
from halimede.frontends.log_settings import LOG_FORMATS

_SWITCHES: Final = ("log_info", "log_warning", "log_error")
_LEVEL: Final = "log_verbose_level"
_FORMAT: Final = "log_format"
_FILE: Final = "log_file"
_UINT64: Final = range(1 << 64)


def read_log_changes(document: Any) -> dict[str, bool | int | str]:
    """The settings that a request changes, for `LogControl.change`. A value of null changes nothing.

    Raises:
        InvalidArgumentError: a value is of another type than its setting.
        UnavailableError: the format is unknown, for which tritonserver answers 503.
    """
    if not isinstance(document, dict):
        return {}
    changes = {key: value for key, value in document.items() if value is not None}
    if _FILE in changes:
        return {_FILE: ""}
    for key in _SWITCHES:
        if not isinstance(changes.get(key, False), bool):
            raise _wrong_type("non-boolean as boolean")
    level = changes.get(_LEVEL, 0)
    if type(level) is not int or level not in _UINT64:
        raise _wrong_type("non-unsigned-integer as unsigned-integer")
    form = changes.get(_FORMAT, LOG_FORMATS[0])
    if not isinstance(form, str):
        raise _wrong_type("non-string as string")
    if form not in LOG_FORMATS:
        raise UnavailableError(f"invalid argument for --log_format, got: {form}")
    return changes


def _wrong_type(words: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"attempt to access JSON {words}")
