"""A process that sends its share of the load, and reports each request that was answered."""

import asyncio
import gc
import itertools
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import uvloop

from halimede.bench.clients.grpc import GrpcLane
from halimede.bench.clients.http import HttpLane
from halimede.bench.clients.lane import Lane, Recorder, now
from halimede.bench.plan import Level, Plan, share
from halimede.bench.sequences import SequenceState, correlation_ids
from halimede.bench.timer import Timer
from halimede.core.tasks import Tasks

REPORT_EVERY_S = 0.05
RECONNECT_AFTER_S = 0.2
END_WITHIN_S = 2.0
_CONNECT_WITHIN_S = 10
_MOST_DUE = 1_000_000  # waiting requests of an open loop


@dataclass(frozen=True, slots=True)
class Report:
    """What a process tells, some twenty times a second.

    Attributes:
        until: all that was answered before this time (ns) has been told.
        cpu_s: CPU time that the process has used.
        records: numbers, six for each request: see `halimede.bench.clients.lane.COLUMNS`.
        gaps: numbers, two for each further response of a request.
        errors: texts of errors and their numbers.
        connections: open ones.
        waiting: requests that are due and have no connection.
        under_way: requests that are being answered.
        finished: nothing is left to be sent or to be answered.
    """

    until: int
    cpu_s: float
    records: bytes
    gaps: bytes
    errors: dict[str, int]
    connections: int
    waiting: int
    under_way: int
    finished: bool


def run(plan: Plan, index: int, orders: Connection, reports: Connection) -> None:
    """Send load as the orders say, until they end or bring None.

    Reports have a pipe of their own, which blocks: event loops make what they watch non-blocking.
    """
    gc.freeze()
    gc.disable()  # requests leave no cycles
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Worker(plan, index, orders, reports).run())


class Worker:
    """The load of one process."""

    def __init__(self, plan: Plan, index: int, orders: Connection, reports: Connection) -> None:
        self._plan = plan
        self._index = index
        self._orders = orders
        self._reports = reports
        self._recorder = Recorder()
        self._lanes: set[Lane] = set()
        self._idle: list[Lane] = []
        self._opening = 0
        self._wanted = 0  # connections of a closed loop
        self._left = -1  # requests that may be sent; -1 for no limit
        self._due: deque[int] = deque()
        self._arrivals: Iterator[int] | None = None
        self._began = self._next_due = 0
        self._most = max(1, share(plan.connections, index, plan.processes))
        self._timer = Timer()
        self._stopped = asyncio.Event()
        self._tasks = Tasks()
        self._context = plan.address.context(*(("h2",) if plan.grpc else ()))
        first = index % len(plan.payloads)
        self._streams = itertools.cycle(plan.payloads[first:] + plan.payloads[:first])
        self._messages = itertools.cycle([payload.message() for payload in plan.payloads[0]])
        self._sequences: dict[Lane, SequenceState] = {}
        self._ids = correlation_ids(plan, index) if plan.sequences else iter(())

    async def run(self) -> None:
        """Send load until the orders say that it is enough."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._orders.fileno(), self._command)
        loop.add_reader(self._timer.fileno(), self._arrive)
        self._reports.send("ready")
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), REPORT_EVERY_S)
            self._give_up_overdue()
            if not self._report():
                break
        await self._end_sequences()
        loop.remove_reader(self._orders.fileno())
        loop.remove_reader(self._timer.fileno())
        self._tasks.cancel()
        for lane in list(self._lanes):
            lane.idle = lane.closed = _forget
            lane.abort()
        self._timer.close()

    async def _end_sequences(self) -> None:
        """Send the rest of each sequence that has begun, so that none keeps its slot in the server."""
        self._arrivals = None
        self._due.clear()
        self._wanted = 0
        self._left = -1
        idle, self._idle = self._idle, []
        for lane in idle:
            self._on_idle(lane)
        ends = now() + round(END_WITHIN_S * 1e9)
        while self._plan.sequences and now() < ends and any(lane.busy for lane in self._lanes):  # noqa: ASYNC110 - at the end only
            await asyncio.sleep(0.005)

    def _command(self) -> None:
        try:
            level = self._orders.recv()
        except (EOFError, OSError):
            level = None
        if level is None:
            self._stopped.set()
        else:
            self._set(level)

    def _set(self, level: Level) -> None:
        """Change the load."""
        plan = self._plan
        self._due.clear()
        self._left = share(level.requests, self._index, plan.processes) if level.requests else -1
        if level.arrivals is None:
            self._arrivals = None
            self._wanted = share(level.concurrency, self._index, plan.processes)
            for _ in range(self._wanted - len(self._lanes) - self._opening):
                self._open()
            idle, self._idle = self._idle, []
            for lane in idle:
                self._on_idle(lane)
            return
        self._wanted = 0
        self._arrivals = level.arrivals.share(self._index, plan.processes, plan.seed)
        self._began = now()
        self._next_due = self._began + next(self._arrivals)
        self._timer.set(self._next_due)

    def _arrive(self) -> None:
        """Send what is due, and set the timer for what comes next."""
        self._timer.acknowledge()
        if self._arrivals is None:
            return
        at = now()
        while self._next_due <= at:
            if self._left == 0:
                self._arrivals = None
                return
            self._left -= self._left > 0
            self._dispatch(self._next_due)
            self._next_due = self._began + next(self._arrivals)
        self._timer.set(self._next_due)

    def _dispatch(self, due: int) -> None:
        while self._idle:
            lane = self._idle.pop()
            if lane.usable:
                lane.send(self._message(lane), due)
                return
        if len(self._due) < _MOST_DUE:
            self._due.append(due)
        if len(self._lanes) + self._opening < self._most and self._opening < len(self._due):
            self._open()

    def _on_idle(self, lane: Lane) -> None:
        """Give a connection its next request, if there is one."""
        if not lane.usable or lane.busy:
            return
        if self._arrivals is not None or self._due:
            if self._due:
                lane.send(self._message(lane), self._due.popleft())
            else:
                self._idle.append(lane)
            return
        if self._left and (len(self._lanes) - len(self._idle) <= self._wanted or self._in_sequence(lane)):
            self._left -= self._left > 0
            lane.send(self._message(lane))
            return
        self._idle.append(lane)

    def _in_sequence(self, lane: Lane) -> bool:
        state = self._sequences.get(lane)
        return state is not None and state.under_way

    def _message(self, lane: Lane) -> bytes:
        if self._plan.sequences is None:
            return next(self._messages)
        if lane not in self._sequences:
            seed = self._plan.seed * 1009 + self._index + len(self._sequences) * self._plan.processes
            self._sequences[lane] = SequenceState(self._plan.sequences, self._ids, self._streams, seed)
        return self._sequences[lane].next()

    def _open(self) -> None:
        self._opening += 1
        self._tasks.start("opening a connection", self._connect())

    async def _connect(self) -> None:
        """Open a connection, and try again while the server cannot be reached."""
        began = now()
        while True:
            try:
                lane = await self._attempt()
                break
            except (OSError, TimeoutError) as error:
                authority = self._plan.address.authority
                reason = f"no connection to {authority}: {str(error) or 'it took too long'}"
                at = now()
                number = self._recorder.error_number(reason)
                self._recorder.records.extend((began, began, at, at, 0, number))
                await asyncio.sleep(RECONNECT_AFTER_S)
                began = now()
        self._opening -= 1
        self._lanes.add(lane)
        lane.idle = self._on_idle
        lane.closed = self._on_closed
        self._on_idle(lane)

    async def _attempt(self) -> Lane:
        """A connection that is ready for requests.

        Raises:
            OSError, TimeoutError: the server cannot be reached.
        """
        loop = asyncio.get_running_loop()
        address = self._plan.address
        lane = self._new_lane()
        ready: asyncio.Future[None] = loop.create_future()
        lane.ready = lambda: None if ready.done() else ready.set_result(None)
        lane.closed = lambda _: (
            None if ready.done() else ready.set_exception(ConnectionError("it was closed"))
        )
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                await loop.create_connection(lambda: lane, address.host, address.port, ssl=self._context)
                await ready
        except BaseException:
            ready.cancel()
            lane.abort()
            raise
        return lane

    def _new_lane(self) -> Lane:
        plan = self._plan
        if not plan.grpc:
            return HttpLane(self._recorder, streaming=plan.streaming)
        return GrpcLane(
            self._recorder,
            plan.address,
            metadata=plan.metadata,
            streaming=plan.streaming,
            decoupled=plan.decoupled,
        )

    def _on_closed(self, lane: Lane) -> None:
        self._lanes.discard(lane)
        self._sequences.pop(lane, None)
        if lane in self._idle:
            self._idle.remove(lane)
        needed = self._wanted if self._arrivals is None else min(self._most, len(self._due))
        if not self._stopped.is_set() and len(self._lanes) + self._opening < needed and self._left:
            self._open()

    def _give_up_overdue(self) -> None:
        before = now() - round(self._plan.timeout_s * 1e9)
        for lane in [lane for lane in self._lanes if lane.overdue(before)]:
            lane.usable = False
            lane.finish(f"no answer within {self._plan.timeout_s:g} s")
            lane.abort()

    def _report(self) -> bool:
        """Tell what was answered; whether somebody still listens."""
        until = now()
        records, gaps = self._recorder.take()
        under_way = sum(lane.busy for lane in self._lanes)
        report = Report(
            until,
            time.process_time(),
            records,
            gaps,
            dict(self._recorder.errors),
            len(self._lanes),
            len(self._due),
            under_way,
            finished=self._left == 0 and not under_way and not self._due,
        )
        try:
            self._reports.send(report)
        except OSError:
            return False
        return True


def _forget(_lane: Lane) -> None:
    return
