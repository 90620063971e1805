"""What a model in the server's process prints and logs, in the server's log with its name."""

import io
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from halimede.workers.in_server.inbox import Inbox
from halimede.workers.in_server.mailbox import Mailbox
from halimede_worker.messages.wire import LOG, ClosedError


class ModelLogs:
    """The log of one instance. Any thread may write to it.

    Only what the model's own code prints with `print` is known to be the model's.
    """

    def __init__(self, inbox: Inbox, control: Mailbox, printed: Callable[[bytes, bool], None]) -> None:
        """A log that writes messages to `control`; `printed` gets lines, and whether they are errors, on the loop."""
        self._control = control
        self._printed = printed
        self._lines = Mailbox(inbox, lambda message: printed(*message))
        self._logger: logging.Logger | None = None

    def print(
        self,
        *values: object,
        sep: str | None = " ",
        end: str | None = "\n",
        file: Any = None,
        flush: bool = False,
    ) -> None:
        """As Python's own, but that standard output and error are the log."""
        error = file is not None and file in (sys.stderr, sys.__stderr__)
        if not error and file not in (None, sys.stdout, sys.__stdout__):
            print(*values, sep=sep, end=end, file=file, flush=flush)
            return
        text = io.StringIO()
        print(*values, sep=sep, end=end, file=text)
        with suppress(ClosedError):  # the instance is gone
            self._lines.send((text.getvalue().encode("utf-8", "replace"), error))

    def listen(self, package: str) -> None:
        """Take what loggers say that modules of the package have named after themselves."""
        self._logger = logging.getLogger(package)
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(_Handler(self._control))

    def close(self) -> None:
        """Log what was printed without an end of line."""
        self._lines.poll()
        self._lines.close()
        for error in (False, True):
            self._printed(b"", error)
        if self._logger is not None:
            self._logger.handlers.clear()


class _Handler(logging.Handler):
    """Sends records to the server's log; CRITICAL is ERROR."""

    def __init__(self, control: Mailbox) -> None:
        super().__init__()
        self._control = control

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its traceback, if it has one."""
        try:
            text = self.format(record)
            level = min(record.levelno // 10 * 10, logging.ERROR)
            self._control.send((LOG, level, record.filename, record.lineno, text))
        except Exception:  # a record that cannot be formatted is no reason for a model to fail
            self.handleError(record)
