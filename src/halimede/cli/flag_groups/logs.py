"""What is logged."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, FILE, MILLISECONDS, VERBOSITY, choice, setting
from halimede.frontends.log_settings import LOG_FORMATS
from halimede.frontends.request_log.formats import ACCESS_LOG_FORMATS

LOGGING: Final = "Logging"


@dataclass(frozen=True, kw_only=True)
class LoggingOptions:
    """The flags of the group "Logging"."""

    log_verbose: int = setting(
        LOGGING,
        VERBOSITY,
        0,
        "Level of verbose messages. 0: none. 1: requests that fail, with the reason, and verbose messages of "
        "models. 2 and more: internals of the frameworks as well.",
    )
    log_info: bool = setting(LOGGING, BOOL, True, "Log informational messages.")
    log_warning: bool = setting(LOGGING, BOOL, True, "Log warnings.")
    log_error: bool = setting(LOGGING, BOOL, True, "Log errors.")
    log_format: str = setting(
        LOGGING,
        choice(*LOG_FORMATS),
        "default",
        "Format of log lines: default and ISO8601 as in tritonserver, or json for one JSON object per line.",
    )
    log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the log to.",
        shown_default="standard output; standard error for warnings and errors",
    )
    access_log: str = setting(
        LOGGING,
        choice(*ACCESS_LOG_FORMATS),
        "none",
        "Log every request, as a line of text or as a JSON object: its client, call, status, times and sizes.",
    )
    access_log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the access log to. If the file is renamed, as logrotate does, a new one is created.",
        shown_default="standard error",
    )
    slow_request_ms: int = setting(
        LOGGING,
        MILLISECONDS,
        0,
        "Log requests that take at least this long, with the time of each stage; 0 disables it.",
    )
