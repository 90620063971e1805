"""What the server logs, which clients may read and change while it runs (`/v2/logging`, `LogSettings`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.frontends.recent_logs import RecentLogs

LOG_FORMATS: Final = ("default", "ISO8601", "json")
"""Forms of a line: tritonserver's two, or one JSON object a line."""

_INT_MAX: Final = (1 << 31) - 1
_FIELDS: Final = {
    "log_file": "file",
    "log_info": "info",
    "log_warning": "warning",
    "log_error": "error",
    "log_verbose_level": "verbose",
    "log_format": "format",
}
"""Names that the protocol gives to the fields of `LogSettings`, in its order."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged, how and where; each is the flag of the same name.

    Attributes:
        info: whether to log what happens.
        warning: whether to log warnings.
        error: whether to log errors.
        verbose: how much more to log; 0 for nothing.
        format: one of `LOG_FORMATS`.
        file: the file to append to; None for standard output and error.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0
    format: str = "default"
    file: Path | None = None


class LogControl:
    """The settings of the log of this process.

    Attributes:
        settings: those that hold now.
        on_change: called with settings that have come into effect.
        recent: the latest records.
    """

    def __init__(
        self, settings: LogSettings | None = None, apply: Callable[[LogSettings], None] = lambda _: None
    ) -> None:
        """Settings that hold already, the defaults for None; `apply` puts others into effect."""
        self.settings = settings or LogSettings()
        self.recent = RecentLogs()
        self.on_change: Callable[[LogSettings], None] | None = None
        self._apply = apply

    def put(self, settings: LogSettings) -> None:
        """Have these settings in place of the others."""
        self.settings = settings
        self._apply(settings)
        if self.on_change is not None:
            self.on_change(settings)

    def document(self) -> dict[str, bool | int | str]:
        """The settings under the protocol's names, in its order; `log_file` is "" for none."""
        values = {name: getattr(self.settings, attribute) for name, attribute in _FIELDS.items()}
        return {**values, "log_file": str(self.settings.file or "")}

    def change(self, changes: Mapping[str, bool | int | str]) -> None:
        """Change settings, all of them or, on an error, none.

        Args:
            changes: protocol name → value, whose type must be that of the setting. Unknown names are ignored.

        Raises:
            UnsupportedError: the file was to be changed.
            InvalidArgumentError: the format is unknown.
        """
        if "log_file" in changes:
            raise UnsupportedError("log file location can not be updated through network protocol")
        fields: dict[str, Any] = {_FIELDS[name]: value for name, value in changes.items() if name in _FIELDS}
        if fields.get("format", LOG_FORMATS[0]) not in LOG_FORMATS:
            raise InvalidArgumentError(f"invalid argument for --log_format, got: {fields['format']}")
        if not 0 <= fields.get("verbose", 0) <= _INT_MAX:
            fields["verbose"] = 0  # as tritonserver, whose level is a C++ int
        if fields:
            self.put(replace(self.settings, **fields))
