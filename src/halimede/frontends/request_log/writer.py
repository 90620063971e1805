"""Opens the end of the access log: a process that makes lines, and writes them."""

import os
from pathlib import Path
from typing import Final

from halimede.frontends.request_log.line_file import open_file
from halimede.workers.batch_process import BatchProcess

_PROCESS: Final = "halimede.frontends.request_log.formatting"


def open_writer(form: str, path: Path | None) -> BatchProcess:
    """What writes pickled batches of entries as lines.

    Args:
        form: of the lines, text or json.
        path: the file; None for standard error.

    Raises:
        OSError: the file cannot be opened.
    """
    if path is not None:
        os.close(open_file(path))  # told now, and to the one who started the server
    arguments = [form] if path is None else [form, str(path.absolute())]
    return BatchProcess(_PROCESS, arguments, name="access log", records="lines")
