"""The process that writes traces in Triton's format.

    python -m halimede.engine.tracing.trace_writing

It reads pickled batches from standard input until that ends: for each client's request the file, whether that is
begun, and a list of traces (`SentTrace`). On standard output it tells how many traced requests it could not write, a
number a line.
"""

import os
import pickle
import signal
import sys
from operator import itemgetter
from typing import BinaryIO, Final

from halimede.engine.tracing.trace_json import trace_objects

_NUMBER: Final = itemgetter(0)


class TraceFiles:
    """Files, each a JSON array to which objects are added. That one cannot be written is told when it begins and ends.

    Attributes:
        dropped: traced requests that could not be written since then.
    """

    def __init__(self) -> None:
        self.dropped = 0

    def add(self, path: str, objects: str, requests: int, *, fresh: bool) -> None:
        """Add JSON objects, with commas between them, of so many requests; to an empty file if it is `fresh`."""
        try:
            append_to_array(path, objects.encode(), fresh=fresh)
        except OSError as error:
            if not self.dropped:
                _tell(
                    f"cannot write to {path}: {error.strerror or error}; traces are dropped until that goes well"
                )
            self.dropped += requests
            sys.stdout.write(f"{requests}\n")
            sys.stdout.flush()
        else:
            self.tell_dropped()

    def tell_dropped(self) -> None:
        """Tell how many traced requests were dropped, if any were."""
        if self.dropped:
            _tell(f"{self.dropped} traced requests were dropped, as they could not be written")
            self.dropped = 0


def append_to_array(path: str, objects: bytes, *, fresh: bool) -> None:
    """Add objects to the JSON array in a file; on an error it stays as it was.

    Raises:
        OSError: they cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if fresh else 0), 0o644)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        filled = size > len(b"[]")
        if filled and not objects:
            return
        place = size - 1 if filled else 0  # of the bracket at the end
        written = view = memoryview((b"," if filled else b"[") + objects + b"]")
        try:
            while view:
                view = view[os.pwrite(descriptor, view, place + len(written) - len(view)) :]
        except OSError:
            os.ftruncate(descriptor, place)
            if filled:
                os.pwrite(descriptor, b"]", place)
            raise
    finally:
        os.close(descriptor)


def write_batches(batches: BinaryIO, files: TraceFiles) -> None:
    """Write what batches consist of, until there are no more."""
    while True:
        try:
            records = pickle.load(batches)  # noqa: S301 - only the server writes to this pipe
        except EOFError:
            files.tell_dropped()
            return
        texts: list[str] = []
        requests = 0
        begun = ("", False)
        for path, fresh, traces in records:
            if requests and (fresh or path != begun[0]):
                files.add(begun[0], ",".join(texts), requests, fresh=begun[1])
                texts.clear()
                requests = 0
            if not requests:
                begun = path, fresh
            requests += 1
            if len(traces) > 1:
                traces.sort(key=_NUMBER)
            texts += filter(None, [trace_objects(values) for values in traces])
        files.add(begun[0], ",".join(texts), requests, fresh=begun[1])


def _tell(text: str) -> None:
    sys.stderr.write(f"tracing: {text}\n")
    sys.stderr.flush()


def main() -> None:
    """Run until the server closes the pipe; signals are for the server, whose last requests come after them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    write_batches(sys.stdin.buffer, TraceFiles())


if __name__ == "__main__":
    main()
