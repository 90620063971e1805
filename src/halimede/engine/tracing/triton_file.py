"""Traces into files of Triton's format, written by another process, so that the server spends no time on them."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from halimede.core.clock import MILLISECOND, Clock, Timer
from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import SpanContext, Trace
from halimede.engine.tracing.settings import TENSORS, TraceSettings
from halimede.workers.batch_process import BatchProcess

_PROCESS: Final = "halimede.engine.tracing.trace_writing"
_FLUSH_NS: Final = 100 * MILLISECOND
_BATCH: Final = 64
_BATCH_BYTES: Final = 1 << 20
_MOST_WAITING: Final = 64 << 20


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

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = str(Path(path).absolute())
        _check_writable(Path(self._path))
        self._clock = clock
        self._timer: Timer | None = None
        self._unwritten = 0
        self._process = BatchProcess(
            _PROCESS,
            (),
            name="tracing",
            records="traced requests",
            most_waiting=_MOST_WAITING,
            on_line=self._count_unwritten,
        )
        self._plain_begun = False
        self._next_index = 0
        self._open: WeakKeyDictionary[TraceSettings, _NumberedFile] = WeakKeyDictionary()
        self._traces: list[_Record] = []
        self._bytes = 0
        self._batches: list[tuple[bytes, int]] = []  # the thread is woken only from time to time

    @property
    def dropped(self) -> int:
        """Traced requests that are lost, as they could not be written, or not fast enough."""
        return self._process.dropped + self._unwritten

    def _count_unwritten(self, line: bytes) -> None:
        """Take a line of the process, which tells what it could not write."""
        self._unwritten += int(line)

    def remote(self, headers: Mapping[str, object]) -> SpanContext | None:
        """None: clients' traces are not continued."""
        return None

    def context(self, parent: SpanContext | None) -> SpanContext | None:
        """None: there are no spans."""
        return None

    def export(self, traces: list[Trace], settings: TraceSettings) -> None:
        """Write a client's request and all that it has caused, within a tenth of a second."""
        path, fresh = self._place(settings)
        self._traces.append((path, fresh, [values_of(trace) for trace in traces]))
        if TENSORS in settings.levels:
            self._bytes += sum(len(tensor.content) for trace in traces for tensor in trace.contents)
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now() + _FLUSH_NS, self._write)
        if len(self._traces) >= _BATCH or self._bytes >= _BATCH_BYTES:
            self._pack()

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
        self._write()

    def _pack(self) -> None:
        if self._traces:
            self._batches.append((pickle.dumps(self._traces, 5), len(self._traces)))
            self._traces.clear()
            self._bytes = 0

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pack()
        for batch, records in self._batches:
            self._process.write(batch, records)
        self._batches.clear()

    def close(self, timeout_s: float) -> None:
        """Write what is left, as long as that takes no longer than `timeout_s`."""
        self._write()
        self._process.close(timeout_s)


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


Values = tuple[Any, ...]
_Record = tuple[str, bool, list[Values]]


def values_of(trace: Trace) -> Values:
    """All of a trace that the file shows, for the process that writes it."""
    parent = trace.parent
    return (
        trace.number,
        0 if parent is None else parent.number,
        trace.model_name,
        trace.model_version,
        trace.request_id,
        trace.events if trace.timestamps else None,
        trace.contents,
    )


def _check_writable(path: Path) -> None:
    existed = path.exists()
    try:
        path.open("ab").close()
        if not existed:
            path.unlink()  # as it is no JSON
    except OSError as error:
        raise InvalidArgumentError(f"cannot write traces to {path}: {error.strerror or error}") from error
