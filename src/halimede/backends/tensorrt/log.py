"""What TensorRT says: into the log, and into errors, as its calls only tell that they failed."""

import logging
from threading import local
from typing import Any

import tensorrt

logger = logging.getLogger("halimede")

_Severity = tensorrt.ILogger.Severity
_LEVELS = {
    _Severity.INTERNAL_ERROR: logging.ERROR,
    _Severity.ERROR: logging.ERROR,
    _Severity.WARNING: logging.WARNING,
}


class Messages(tensorrt.ILogger):  # type: ignore[misc]  # the bindings have no types
    """TensorRT's logger. It keeps the last errors of each thread, which is where TensorRT reports them."""

    def __init__(self) -> None:
        tensorrt.ILogger.__init__(self)
        self._thread = local()

    def log(self, severity: Any, msg: str) -> None:
        """Take a message; TensorRT calls this, from any thread."""
        level = _LEVELS.get(severity, logging.DEBUG)
        if level == logging.ERROR:
            self._thread.errors = [*self._errors()[-2:], msg]
        # an error that matters comes back as the error of a request or a load
        logger.log(min(level, logging.WARNING), "TensorRT: %s", msg)

    def reason(self) -> str:
        """The last errors of this thread, which are forgotten."""
        errors = "; ".join(self._errors())
        self._thread.errors = []
        return errors

    def _errors(self) -> list[str]:
        found: list[str] = getattr(self._thread, "errors", [])
        return found


MESSAGES = Messages()
"""TensorRT takes one logger a process."""
