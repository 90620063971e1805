"""Traces into files of Triton's format, written by another process, so that the server spends no time on them."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from halimede.core.clock import Clock
from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import Trace
from halimede.engine.tracing.sent_traces import sent_trace
from halimede.engine.tracing.settings import TENSORS, TraceSettings
from halimede.engine.tracing.trace_batches import MOST_WAITING, TraceBatches
from halimede.workers.batch_process import BatchProcess

logger = logging.getLogger("halimede")

_PROCESS: Final = "halimede.engine.tracing.trace_writing"


class TraceFileExporter:
    """Writes traces to a file, or, with a log frequency, to files with a number after the name, so many in each.

    The numbers are in the order in which the files are begun, whatever settings they belong to. A file holds complete
    JSON whenever it is not being written to, within a tenth of a second after the end of a request.

    Args:
        path: the file.
        clock: the time.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """

    options: Sequence[tuple[str, str]] = ()
    spans = False

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = str(Path(path).absolute())
        _check_writable(Path(self._path))
        self._unwritten = 0
        self._process = BatchProcess(
            _PROCESS,
            (),
            name="tracing",
            records="traced requests",
            most_waiting=MOST_WAITING,
            on_line=self._count_unwritten,
        )
        self._batches = TraceBatches(self._process, clock)
        self._plain_begun = False
        self._next_index = 0
        self._open: WeakKeyDictionary[TraceSettings, _NumberedFile] = WeakKeyDictionary()

    @property
    def dropped(self) -> int:
        """Traced requests that are lost, as they could not be written, or not fast enough."""
        return self._process.dropped + self._unwritten

    def _count_unwritten(self, line: bytes) -> None:
        """Take a line of the process, which tells what it could not write."""
        self._unwritten += int(line)

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        """Write a client's request and all that it has caused, within a tenth of a second."""
        path, fresh = self._place(settings)
        size = 0
        if TENSORS in settings.levels:
            size = sum(len(tensor.content) for trace in traces for tensor in trace.contents)
        self._batches.add((path, fresh, [sent_trace(trace) for trace in traces]), size)

    def _place(self, settings: TraceSettings) -> tuple[str, bool]:
        """The file for the next traced request, and whether that is the first in it."""
        if not settings.log_frequency:
            fresh, self._plain_begun = not self._plain_begun, True
            return self._path, fresh
        file = self._open.get(settings)
        fresh = file is None
        if file is None:
            file = self._open[settings] = _NumberedFile(f"{self._path}.{self._next_index}")
            self._next_index += 1
        file.count += 1
        if file.count >= settings.log_frequency:
            del self._open[settings]
        return file.path, fresh

    def flush(self, settings: TraceSettings) -> None:
        """No more requests will be sampled by these settings, though some may be under way."""
        self._batches.flush()

    def close(self, timeout_s: float) -> None:
        """Write what is left, as long as that takes no longer than `timeout_s`."""
        self._batches.flush()
        if not self._process.close(timeout_s):
            logger.warning("tracing: the last traces are still being written")


class _NumberedFile:
    """A file that takes no more than so many traced requests.

    Attributes:
        path: the file.
        count: how many it has.
    """

    __slots__ = ("count", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0


def _check_writable(path: Path) -> None:
    existed = path.exists()
    try:
        path.open("ab").close()
        if not existed:
            path.unlink()  # as it is no JSON
    except OSError as error:
        raise InvalidArgumentError(f"cannot write traces to {path}: {error.strerror or error}") from error
