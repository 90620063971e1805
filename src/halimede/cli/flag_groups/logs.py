"""What is logged."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, FILE, VERBOSITY, choice, setting
from halimede.frontends.log_settings import LOG_FORMATS
from halimede.frontends.request_log.formats import ACCESS_LOG_FORMATS

LOGGING: Final = "Logging"


@dataclass(frozen=True, kw_only=True)
class LoggingOptions:
    """The flags of the group "Logging" that do something."""

    log_verbose: int = setting(
        LOGGING,
        VERBOSITY,
        0,
        "How much more to log: 0 nothing, 1 requests that fail, with the reason, and what models log as verbose, 2 "
        "and more internals of the frameworks.",
    )
    log_info: bool = setting(LOGGING, BOOL, True, "Whether to log what happens.")
    log_warning: bool = setting(LOGGING, BOOL, True, "Whether to log warnings.")
    log_error: bool = setting(LOGGING, BOOL, True, "Whether to log errors.")
    log_format: str = setting(
        LOGGING,
        choice(*LOG_FORMATS),
        "default",
        "Form of a line: tritonserver's two, or one JSON object a line.",
    )
    log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the log to.",
        shown_default="standard output; warnings and errors to standard error",
    )
    access_log: str = setting(
        LOGGING,
        choice(*ACCESS_LOG_FORMATS),
        "none",
        "Log each request as a line of text or as a JSON object: who asked what, the status, times and sizes.",
    )
    access_log_file: str = setting(
        LOGGING,
        FILE,
        "",
        "File to append the access log to. It may be moved away, as logrotate does: a new one is begun.",
        shown_default="standard error",
    )
    slow_request_ms: int = setting(
        LOGGING,
        COUNT,
        0,
        "Log requests that take at least so many milliseconds, with the time of each stage; 0 for none.",
    )
