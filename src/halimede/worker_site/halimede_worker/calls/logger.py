"""The server's log, as models write to it: with `Logger`, and with Python's own `logging`.

`logging` works as it stands: a handler on the root logger sends what is INFO or above to the server, with the file
and line of the model. It is there before the model is imported, so `logging.basicConfig` does nothing, as ever when
there is a handler, unless it is called with `force=True`, which takes the place of this one. A model that adds a
handler of its own has its messages twice if that one prints, as what is printed reaches the log too.
"""

import logging
import os
import sys
import time
from types import FrameType
from typing import ClassVar, Union

from ..arguments import Signature
from ..enumeration import NamedInt
from ..messages.wire import LOG, ClosedError
from ..runtime import Runtime, runtime


class LogLevel(NamedInt):
    """How important a message is."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3
    """Logged only where `--log-verbose` is 1 or more."""


_LogLevel = LogLevel  # in the class below, the name is its attribute's

_LEVELS = {
    LogLevel.VERBOSE: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}
_LOG = Signature.function("log(message: str, level: LogLevel = LogLevel.INFO) -> None")
_LOG_INFO = Signature.function("log_info(message: str) -> None")
_LOG_WARN = Signature.function("log_warn(message: str) -> None")
_LOG_ERROR = Signature.function("log_error(message: str) -> None")
_LOG_VERBOSE = Signature.function("log_verbose(message: str) -> None")


class Logger:
    """The log of the server. A message has the file and line of the call; nothing waits for it.

    Until `initialize` begins, messages go to standard error.
    """

    __module__ = "c_python_backend_utils"

    _runtime: ClassVar[Runtime] = runtime

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    def __init__(self) -> None:
        raise TypeError("Logger: No constructor defined! Its functions are called on the class")

    @classmethod
    def log(cls, message: "Union[str, bytes]", level: _LogLevel = _LogLevel.INFO) -> None:
        """Log a message at a level: `INFO`, `WARNING`, `ERROR` or `VERBOSE`.

        Raises:
            TypeError: the message is no text, or the level none of these.
        """
        text = _LOG.text("message", message)
        _log(cls._runtime, _LEVELS[_LOG.instance("level", level, _LogLevel)], sys._getframe(1), text)

    @classmethod
    def log_info(cls, message: "Union[str, bytes]") -> None:
        """Log what happens.

        Raises:
            TypeError: the message is no text.
        """
        _log(cls._runtime, logging.INFO, sys._getframe(1), _LOG_INFO.text("message", message))

    @classmethod
    def log_warn(cls, message: "Union[str, bytes]") -> None:
        """Log a warning.

        Raises:
            TypeError: the message is no text.
        """
        _log(cls._runtime, logging.WARNING, sys._getframe(1), _LOG_WARN.text("message", message))

    @classmethod
    def log_error(cls, message: "Union[str, bytes]") -> None:
        """Log an error.

        Raises:
            TypeError: the message is no text.
        """
        _log(cls._runtime, logging.ERROR, sys._getframe(1), _LOG_ERROR.text("message", message))

    @classmethod
    def log_verbose(cls, message: "Union[str, bytes]") -> None:
        """Log what is only wanted where `--log-verbose` is 1 or more.

        Raises:
            TypeError: the message is no text.
        """
        _log(cls._runtime, logging.DEBUG, sys._getframe(1), _LOG_VERBOSE.text("message", message))


class ServerLogHandler(logging.Handler):
    """Sends records to the server's log; DEBUG is its VERBOSE, CRITICAL is ERROR."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its traceback, if it has one."""
        try:
            text = self.format(record)
            if record.levelno >= logging.ERROR:
                level = logging.ERROR
            elif record.levelno >= logging.WARNING:
                level = logging.WARNING
            else:
                level = logging.INFO if record.levelno >= logging.INFO else logging.DEBUG
            _send(runtime, level, record.filename, record.lineno, text)
        except Exception:  # a record that cannot be formatted is no reason for a model to fail
            self.handleError(record)


def log_failure(runtime: Runtime, text: str) -> None:
    """Log that something of the model failed where nobody else tells."""
    _log(runtime, logging.ERROR, sys._getframe(1), text)


def install_handler() -> None:
    """Send what the root logger gets to the server's log, from INFO on."""
    root = logging.getLogger()
    root.addHandler(ServerLogHandler())
    root.setLevel(logging.INFO)


def _log(runtime: Runtime, level: int, frame: FrameType, text: str) -> None:
    file = frame.f_code.co_filename.rpartition(os.sep)[2]
    _send(runtime, level, file, frame.f_lineno, text)


def _send(runtime: Runtime, level: int, file: str, line: int, text: str) -> None:
    if runtime.control is None or not runtime.initializing:
        _print(level, file, line, text)
        return
    try:
        runtime.control.send((LOG, level, file, line, text))
    except ClosedError:
        _print(level, file, line, text)


def _print(level: int, file: str, line: int, text: str) -> None:
    """Write a line to standard error as the server writes its log."""
    now = time.time()
    moment = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    letter = {logging.WARNING: "W", logging.ERROR: "E"}.get(level, "I")
    sys.stderr.write(f"{letter}{moment}.{int(now * 1e6) % 1000000:06d} {os.getpid()} {file}:{line}] {text}\n")
    sys.stderr.flush()
