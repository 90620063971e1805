"""LogSettings: what the server logs, read and changed while it runs."""

from collections.abc import Mapping
from typing import Final

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.log_settings import LOG_FORMATS, LogControl

_FILE: Final = "log_file"
_FORMAT: Final = "log_format"
# Each setting in the order in which it is checked: the field that it has to be in, and what errors call that
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    _FORMAT: ("string_param", "string"),
}


def log_settings(control: LogControl, request: pb.LogSettingsRequest) -> pb.LogSettingsResponse:
    """Change what the request names, which may be nothing; all settings as they are then.

    Raises:
        InvalidArgumentError: a value has a wrong type, or the format is unknown; nothing is changed.
        UnsupportedError: the file was to be changed.
    """
    if request.settings:
        control.change(_read_changes(request.settings))
    response = pb.LogSettingsResponse()
    for name, value in control.document().items():
        setting = response.settings[name]
        if isinstance(value, bool):
            setting.bool_param = value
        elif isinstance(value, int):
            setting.uint32_param = value
        else:
            setting.string_param = value
    return response


def _read_changes(settings: Mapping[str, pb.LogSettingsRequest.SettingValue]) -> dict[str, bool | int | str]:
    """The settings to change; others are ignored."""
    changes: dict[str, bool | int | str] = {}
    if _FILE in settings:
        return {_FILE: ""}  # whatever its type: it cannot be changed
    for name, (kind, words) in _TYPES.items():
        if name in settings:
            if not settings[name].HasField(kind):
                raise InvalidArgumentError(f"expect {words} for '{name}'")
            changes[name] = getattr(settings[name], kind)
    form = changes.get(_FORMAT, LOG_FORMATS[0])
    if form not in LOG_FORMATS:
        raise InvalidArgumentError(f"invalid argument for log_format, got: {form}")
    return changes
