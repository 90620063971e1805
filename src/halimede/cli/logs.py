"""The log: tritonserver's line formats, on standard output and error or in a file.

Every message is written as a JSON string literal, so that no text that comes from a client or a model can
break a line or imitate one. `TRITON_SERVER_ESCAPE_LOG_MESSAGES=0` turns that off.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from typing import TextIO

from halimede.cli.log_stream import LogStream
from halimede.cli.progress import TerminalHandler
from halimede.cli.tables import readable
from halimede.frontends.log_settings import LogControl, LogSettings

_LETTERS = {
    logging.DEBUG: "I",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}
_CONTROL = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def configure(settings: LogSettings) -> LogControl:
    """Send all logging of the process where `settings` say; the result changes them while it runs.

    Raises:
        OSError: the file cannot be opened.
    """
    escape = os.environ.get("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "1") != "0"
    handlers: list[logging.Handler]
    if settings.file is not None:
        handlers = [logging.FileHandler(settings.file, encoding="utf-8")]
    else:
        handlers = [
            _stream(sys.stdout, logging.NOTSET, logging.INFO),
            _stream(sys.stderr, logging.WARNING, 100),
        ]
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    control = LogControl(settings, lambda changed: _apply(handlers, changed, escape))
    handlers.append(control.recent)
    for handler in handlers:
        handler.addFilter(lambda record: _wanted(control.settings, record.levelno))
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    _apply(handlers, settings, escape)
    logging.captureWarnings(capture=True)
    return control


def _apply(handlers: Iterable[logging.Handler], settings: LogSettings, escape: bool) -> None:
    formatter = LineFormatter(settings.format, escape=escape)
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.getLogger("halimede").setLevel(logging.DEBUG if settings.verbose else logging.INFO)


def log_table(logger: logging.Logger, heading: str, table: str) -> None:
    """Log `heading`, and `table` as it is below it."""
    logger.info("%s", heading, extra={"table": table}, stacklevel=2)


class LineFormatter(logging.Formatter):
    """A record as one line; tables and tracebacks follow on lines of their own, indented."""

    def __init__(self, form: str, *, escape: bool = True) -> None:
        super().__init__()
        self._form = form
        self._escape = escape

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = self._as_json(record) if self._form == "json" else self._as_text(record)
        return line.encode("utf-8", "backslashreplace").decode()

    def _as_text(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        seconds, fraction = divmod(int(record.created * 1_000_000), 1_000_000)
        moment = time.gmtime(seconds)
        if self._form == "ISO8601":
            start = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', moment)} {letter}"
        else:
            start = f"{letter}{time.strftime('%m%d %H:%M:%S', moment)}.{fraction:06d}"
        message = record.getMessage()
        if self._escape:
            message = json.dumps(message, ensure_ascii=False).translate(_CONTROL)
        line = f"{start} {record.process} {readable(record.filename)}:{record.lineno}] {message}"
        for block in (getattr(record, "table", ""), self._traceback(record)):
            if block:
                line += "\n" + block
        return line

    def _as_json(self, record: logging.LogRecord) -> str:
        seconds, fraction = divmod(int(record.created * 1_000_000), 1_000_000)
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        document = {
            "time": f"{start}.{fraction:06d}Z",
            "level": record.levelname,
            "process": record.process,
            "file": record.filename,
            "line": record.lineno,
            "message": record.getMessage(),
        }
        for key in ("model", "version"):  # of what a model says
            if hasattr(record, key):
                document[key] = getattr(record, key)
        for key, block in (("table", getattr(record, "table", "")), ("traceback", self._traceback(record))):
            if block:
                document[key] = block
        return json.dumps(document, ensure_ascii=False).translate(_CONTROL)

    def _traceback(self, record: logging.LogRecord) -> str:
        """The traceback, each line indented so that none can look like a line of the log."""
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        lines = self.formatException(record.exc_info).splitlines()
        return "\n".join(f"    {readable(line)}" for line in lines)


class _StreamHandler(TerminalHandler):
    """Writes to a stream for as long as somebody reads it; nobody doing so is no reason to wait or to fail."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines = LogStream(stream) if LogStream.suits(stream) else None

    def write(self, text: str) -> None:
        """Write some lines."""
        if self._lines is None:
            super().write(text)
        else:
            self._lines.write(text)

    def close(self) -> None:
        """Wait a moment for lines that are not written yet."""
        if self._lines is not None:
            self._lines.close()
        super().close()


def _stream(stream: TextIO, lowest: int, highest: int) -> logging.Handler:
    handler = _StreamHandler(stream)
    handler.setLevel(lowest)
    handler.addFilter(lambda record: record.levelno <= highest)
    return handler


def _wanted(settings: LogSettings, level: int) -> bool:
    if level >= logging.ERROR:
        return settings.error
    if level >= logging.WARNING:
        return settings.warning
    if level >= logging.INFO:
        return settings.info
    return settings.verbose > 0
