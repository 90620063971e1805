"""ONNX Runtime's own messages, brought into the server's log."""

import logging
from typing import Final

import onnxruntime

logger = logging.getLogger("halimede")

_LEVELS: Final = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.WARNING, 3: logging.ERROR, 4: logging.ERROR}
"""ONNX Runtime's severities: verbose, info, warning, error, fatal."""


def bring_messages_into_log() -> None:
    """Have ONNX Runtime log through ours. Releases that cannot write to standard error by themselves."""
    set_callback = getattr(onnxruntime, "set_default_logger_callback", None)
    if set_callback is not None:
        set_callback(log_message)


def log_message(severity: int, _category: str, model: str, location: str, message: str) -> None:
    """Log one message.

    Args:
        severity: 0 for verbose to 4 for fatal.
        model: the session's name, "" for none.
        location: the file, line and function that it comes from.
        message: the text.
    """
    level = _LEVELS.get(severity, logging.WARNING)
    if model:
        logger.log(level, "onnxruntime, model '%s': %s (%s)", model, message, location)
    else:
        logger.log(level, "onnxruntime: %s (%s)", message, location)
