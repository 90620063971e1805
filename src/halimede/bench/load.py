"""The processes that send the load, from the side of the one that started them."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np

from halimede.bench.clients.lane import COLUMNS
from halimede.bench.errors import BenchError
from halimede.bench.histogram import Integers
from halimede.bench.plan import Level, Plan
from halimede.bench.worker import Report, run

DUE, SENT, FIRST, END, RESPONSES, ERROR = range(COLUMNS)
"""What the columns of records are."""

_STARTS_WITHIN_S = 60
_SILENT_S = 30
_ENDS_WITHIN_S = 5


@dataclass(frozen=True, slots=True)
class Records:
    """What was answered.

    Attributes:
        requests: [requests, 6]: see `DUE` and those after it; times are in ns of `time.monotonic_ns`.
        gaps: [responses, 2]: when a further response of a request came, and how long after the one before, in ns.
        errors: texts by the numbers in the records.
    """

    requests: Integers
    gaps: Integers
    errors: dict[int, str]


class Load:
    """Processes that send load.

    Attributes:
        waiting: requests that are due and have no connection, as last told.
        under_way: requests that are being answered, as last told.
        finished: a level that has a limit of requests is done.
    """

    def __init__(
        self, processes: list[SpawnProcess], orders: list[Connection], reports: list[Connection]
    ) -> None:
        self._processes = processes
        self._orders = orders
        self._pipes = reports
        self._inbox: SimpleQueue[tuple[Connection, Report | Exception]] = SimpleQueue()
        self._closing = False
        self._reader = Thread(target=self._read, name="halimede-bench-reports", daemon=True)
        self._latest: dict[Connection, Report] = {}
        self._requests: list[Integers] = []
        self._gaps: list[Integers] = []
        self._errors: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Requests that are due and have no connection."""
        return sum(report.waiting for report in self._latest.values())

    @property
    def under_way(self) -> int:
        """Requests that are being answered."""
        return sum(report.under_way for report in self._latest.values())

    @property
    def connections(self) -> int:
        """Open connections."""
        return sum(report.connections for report in self._latest.values())

    @property
    def finished(self) -> bool:
        """Whether all requests of a limited level were answered."""
        return len(self._latest) == len(self._pipes) and all(
            report.finished for report in self._latest.values()
        )

    @property
    def cpu_s(self) -> list[float]:
        """CPU time that each process has used."""
        return [self._latest[pipe].cpu_s for pipe in self._pipes if pipe in self._latest]

    def set(self, level: Level) -> None:
        """Change the load now; what was answered before is forgotten."""
        for pipe in self._orders:
            pipe.send(level)
        self._latest.clear()
        self.take()

    def receive(self, seconds: float) -> None:
        """Take reports for so long.

        Raises:
            BenchError: a process has ended, or is silent.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                pipe, report = self._inbox.get(timeout=left) if left > 0 else self._inbox.get_nowait()
            except Empty:
                return
            self._take_report(pipe, report)

    def receive_until(self, at: int) -> None:
        """Take reports until all that was answered before that time (ns) has been told.

        Raises:
            BenchError: a process has ended, or is silent.
        """
        deadline = time.monotonic() + _SILENT_S + max(0.0, at / 1e9 - time.monotonic())
        while (
            len(self._latest) < len(self._pipes) or min(report.until for report in self._latest.values()) < at
        ):
            if time.monotonic() > deadline:
                raise BenchError(f"A process that sends the load has been silent for {_SILENT_S} s")
            self.receive(0.02)

    def take(self) -> Records:
        """What was told since it was last taken."""
        requests, gaps = self._requests, self._gaps
        self._requests, self._gaps = [], []
        return Records(
            np.concatenate(requests) if requests else np.zeros((0, COLUMNS), np.int64),
            np.concatenate(gaps) if gaps else np.zeros((0, 2), np.int64),
            {number: text for text, number in self._errors.items()},
        )

    def start(self) -> None:
        """Begin to take reports, at once when they come, so that no process ever waits for this one."""
        self._reader.start()

    def _read(self) -> None:
        pipes = list(self._pipes)
        while pipes and not self._closing:
            for pipe in wait(pipes, 0.2):
                assert isinstance(pipe, Connection)
                try:
                    self._inbox.put((pipe, pipe.recv()))
                except (EOFError, OSError) as error:
                    pipes.remove(pipe)
                    self._inbox.put((pipe, error))

    def _take_report(self, pipe: Connection, report: Report | Exception) -> None:
        if isinstance(report, Exception):
            process = self._processes[self._pipes.index(pipe)]
            process.join(1)
            raise BenchError(
                f"A process that sends the load has ended, with code {process.exitcode}; what it wrote is above"
            )
        self._latest[pipe] = report
        if report.records:
            requests = np.frombuffer(report.records, np.int64).reshape(-1, COLUMNS)
            if report.errors:
                requests = self._renumbered(requests.copy(), report.errors)
            self._requests.append(requests)
        if report.gaps:
            self._gaps.append(np.frombuffer(report.gaps, np.int64).reshape(-1, 2))

    def _renumbered(self, requests: Integers, errors: dict[str, int]) -> Integers:
        """The records with numbers of errors that are the same for all processes."""
        numbers = np.zeros(max(errors.values()) + 1, np.int64)
        for text, number in errors.items():
            numbers[number] = self._errors.setdefault(text, len(self._errors) + 1)
        requests[:, ERROR] = numbers[requests[:, ERROR]]
        return requests

    def close(self) -> None:
        """End the processes."""
        for pipe in self._orders:
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in self._processes:
            process.join(_ENDS_WITHIN_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._closing = True
        if self._reader.is_alive():
            self._reader.join()
        for pipe in (*self._orders, *self._pipes):
            pipe.close()


@contextmanager
def started(plan: Plan) -> Iterator[Load]:
    """The processes of a plan, which send nothing yet.

    Raises:
        BenchError: one does not start.
    """
    context = multiprocessing.get_context("spawn")
    processes, orders, reports = [], [], []
    for index in range(plan.processes):
        their_orders, our_orders = context.Pipe(duplex=False)
        our_reports, their_reports = context.Pipe(duplex=False)
        process = context.Process(target=run, args=(plan, index, their_orders, their_reports), daemon=True)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is this process's to handle
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        their_orders.close()
        their_reports.close()
        processes.append(process)
        orders.append(our_orders)
        reports.append(our_reports)
    load = Load(processes, orders, reports)
    try:
        for pipe in reports:
            try:
                if not pipe.poll(_STARTS_WITHIN_S):
                    raise BenchError(f"A process has not started within {_STARTS_WITHIN_S} s")
                pipe.recv()
            except EOFError:
                raise BenchError("A process that sends the load has not started") from None
        load.start()
        yield load
    finally:
        load.close()
