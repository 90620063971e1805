"""The process that turns requests into lines of the access log, so that the server does not spend its time on them.

    python -m halimede.frontends.request_log.formatting FORM [PATH]

It reads pickled batches from standard input until that ends: (what to add to the steady clock for the time of day,
values of entries).
"""

import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from halimede.frontends.request_log.entry import Entry, json_line, text_line
from halimede.frontends.request_log.line_file import LineFile

LINES: Final[dict[str, Callable[[Entry, int], str]]] = {"text": text_line, "json": json_line}
"""Form → what makes a line of an entry."""


def format_batches(batches: BinaryIO, form: str, file: LineFile) -> None:
    """Write a line for each entry, until there are no more."""
    line = LINES[form]
    while True:
        try:
            wall_ns, entries = pickle.load(batches)  # noqa: S301 - only the server writes to this pipe
        except EOFError:
            return
        file.write("".join([line(Entry.restored(values), wall_ns) for values in entries]).encode("ascii"))


def main() -> None:
    """Run until the server closes the pipe; signals are for the server, whose last requests come after them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    form, *path = sys.argv[1:]
    format_batches(sys.stdin.buffer, form, LineFile(Path(path[0]) if path else None))


if __name__ == "__main__":
    main()
