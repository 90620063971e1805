"""An instance of a Python model in the server's process."""

from contextlib import nullcontext
from time import thread_time_ns
from typing import Any

import numpy as np

from halimede.backends.batch import DEFERRED, Batch
from halimede.backends.loop_share import ALONE_COST_NS, LoopShare
from halimede.core.host_policies import HostPolicy
from halimede.workers.in_server.interpreter import NOTED_NS, WATCH
from halimede.workers.in_server.worker import ServerWorker
from halimede.workers.instance import WorkerInstance
from halimede.workers.progress import COUNT, Progress
from halimede.workers.under_way import Sent


class ServerInstance(WorkerInstance):
    """An instance on a thread of the server, or, if its executions are short, on the event loop.

    What it has under way, and what it tells, is as for an instance in a worker process; but it never ends by itself.
    """

    in_server = True

    def __init__(self, *arguments: Any, policy: HostPolicy | None = None, **options: Any) -> None:
        """As `WorkerInstance`; with a `policy`, which says where its thread runs, no batch runs on the loop."""
        super().__init__(*arguments, **options)
        self._policy = policy
        self._share = LoopShare(self._host.loop)
        self._thread: ServerWorker | None = None
        self._short_ns = ALONE_COST_NS
        self._slow = 0  # executions on the loop

    @property
    def processes(self) -> tuple[int, ...]:
        """None of its own."""
        return ()

    async def start(self) -> None:
        """Let the model initialize.

        Raises:
            HalimedeError: `initialize` failed.
        """
        settings = dict(self._launch.settings)
        worker = ServerWorker(self._host, self.name, settings, self._message, self._called, self._policy)
        progress = np.zeros(COUNT, np.int64)
        try:
            told = await worker.initialize(self._arguments, progress, self._concurrency, self._states)
        except BaseException:
            await worker.stop(graceful=False)
            raise
        self._thread = worker
        self._worker = worker  # type: ignore[assignment] # it stands for one
        self._ended.serve(worker if told["sequences"] else None)  # type: ignore[arg-type]
        self._progress = Progress(progress.view(np.uint8))
        self.healthy = self.free = True

    async def _stop(self) -> None:
        await super()._stop()
        self._thread = self._worker = None

    def run(self, batch: Batch) -> bool:
        """Run the batch: True if it has run, False if the owner will be told."""
        thread = self._thread
        assert thread is not None, "it has started"
        if self._ended.pending:
            self._ended.tell()
        here = self._share.take(batch, len(self._sent)) and thread.runs_here
        sent, message = self._begin(batch, None if batch.byte_size <= _SMALL else thread.memory.outgoing())
        if here:
            self._waited = sent
            began = thread_time_ns()
            with self._share.holding_up() if thread.calls else nullcontext():
                thread.run_here(message)
            self._waited = None
            self._measure(batch.ended_ns - batch.started_ns, began)
            if DEFERRED in batch.responses:
                self._heed_cancellation(sent)
            return True
        self._leave_under_way(sent)
        self._share.begin_on_thread()
        if thread.is_coroutine:
            thread.run_here(message)
        else:
            thread.send(message)
        return False

    def _ran(self, sent: Sent, began: int, ended: int, held: list[int]) -> None:
        if sent is self._waited:
            super()._ran(sent, began, ended, held)
            return
        assert self._thread is not None, "it runs"
        may_move = self._thread.may_run_here or self._thread.calls
        # Of the time between, others may have had the processor: the short times are the true ones. Of the time of a
        # model that calls others, those had most.
        more = (self._thread.cpu_ns if self._thread.has_called else ended - began) - self._short_ns
        self._short_ns += more >> (5 if more > 0 else 2)
        self._share.end_on_thread(sent.batch, self._short_ns, may_move=may_move)
        self._share.hand_on(super()._ran, sent, began, ended, held)

    def _return(self, entries: list[tuple[int, Sent]]) -> None:
        for _ in entries:
            self._share.take_back()
        super()._return(entries)

    @property
    def answers_here(self) -> bool:
        """Whether a batch that runs now, while another model waits for it on the loop, is answered at once."""
        return (
            self.free
            and not self._sent
            and self._thread is not None
            and self._share.is_here
            and self._thread.runs_here
        )

    def _measure(self, taken: int, began: int) -> None:
        """An execution on the loop took so many nanoseconds; it began at that time of the thread's processor."""
        assert self._thread is not None, "it runs"
        if not self._thread.has_called:
            self._share.measure(taken)
        elif (
            taken >= ALONE_COST_NS
        ):  # what it waits for beside the models that it calls, no measurement tells
            self._slow += 1
            if self._slow >= MAX_SLOW:
                self._thread.stay_on_thread()
        if taken >= NOTED_NS:
            WATCH.tell_computed(self.name.model, thread_time_ns() - began, taken)


MAX_SLOW = 64
"""A model that calls others stays on its thread once so many executions on the loop took longer than a batch may."""

_SMALL = 16384
"""A batch of no more bytes travels as it is."""
