"""The process that writes the access log, and the batches of requests that wait for it."""

import logging
import os
from pathlib import Path
from typing import Final

from halimede.core.batch_process import BatchProcess
from halimede.frontends.request_log.line_file import open_file

logger = logging.getLogger("halimede")

_PROCESS: Final = "halimede.frontends.request_log.formatting"


class BatchWriter(BatchProcess):
    """The process that writes the access log.

    Args:
        form: of the lines, text or json.
        path: the file; None for standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, form: str, path: Path | None) -> None:
        if path is not None:
            os.close(open_file(path))  # told now, and to the one who started the server
        arguments = [form] if path is None else [form, str(path.absolute())]
        super().__init__("access log", _PROCESS, arguments, _tell_dropped)

    def close(self, timeout_s: float) -> bool:
        """Write what waits: whether that took no longer than `timeout_s`."""
        closed = super().close(timeout_s)
        if not closed:
            logger.warning("access log: the last lines are still being written")
        return closed


def _tell_dropped(lines: int) -> None:
    logger.warning("access log: %d lines were dropped, as they are not written fast enough", lines)
