"""Traced requests on their way to the process that writes or sends them."""

import pickle
from typing import Final

from halimede.core.clock import MILLISECOND, Clock, Timer
from halimede.workers.batch_process import BatchProcess

MOST_WAITING: Final = 64 << 20
"""Bytes that may wait for the process."""

_FLUSH_NS: Final = 100 * MILLISECOND
_BATCH: Final = 64
_BATCH_BYTES: Final = 1 << 20


class TraceBatches:
    """Hands records of traced requests to a process, within a tenth of a second. Lives on the event loop.

    Args:
        process: takes pickled lists of records.
        clock: the time.
    """

    def __init__(self, process: BatchProcess, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._timer: Timer | None = None
        self._records: list[object] = []
        self._bytes = 0
        self._batches: list[tuple[bytes, int]] = []  # the process's thread is woken only from time to time

    def add(self, record: object, size: int = 0) -> None:
        """Hand on a record of one traced request, in which there are tensors of so many bytes."""
        self._records.append(record)
        self._bytes += size
        if len(self._records) >= _BATCH or self._bytes >= _BATCH_BYTES:
            self._pack()
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now() + _FLUSH_NS, self.flush)

    def _pack(self) -> None:
        if self._records:
            self._batches.append((pickle.dumps(self._records, 5), len(self._records)))
            self._records.clear()
            self._bytes = 0

    def flush(self) -> None:
        """Hand on at once what is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pack()
        for batch, records in self._batches:
            self._process.write(batch, records)
        self._batches.clear()
