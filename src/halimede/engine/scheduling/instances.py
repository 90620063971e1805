"""Running batches on instances: each on a thread of its own, or, when that costs more than the work, on the loop.

Which of them run where, `halimede.backends.loop_share` says.

An instance whose batches are short is handed a full one, where there is one, before the last has run on its thread.
Else it would have nothing to do for as long as it takes to tell the loop, and to be told by it.
"""

import logging
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import thread_time_ns

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.backends.loop_share import LoopShare
from halimede.core.host_policies import HostPolicy

logger = logging.getLogger("halimede")

REST_AFTER_S = 1.0
"""An instance rests when its thread has had nothing to run for so long."""

AHEAD_COST_NS = 20_000_000
"""An instance whose batches take more is sent none ahead: its requests may still be cancelled, or time out."""


class Runner:
    """Runs the batches of one instance, one at a time. Its methods are called on the event loop.

    Attributes:
        instance: what runs them.
        free: it takes a batch.
        only_full: a batch is under way, so that the next one has to be full.
    """

    healthy = True

    def __init__(
        self,
        name: str,
        instance: Instance,
        loop: AbstractEventLoop,
        done: Callable[["Runner", Batch], None],
        niceness: int = 0,
        *,
        ahead: bool = False,
        policy: HostPolicy | None = None,
    ) -> None:
        """A runner that calls `done` on the loop for each batch that ran on its thread.

        With a `niceness`, as of `nice(1)`, or a `policy`, which says where its thread runs, no batch runs on the loop.
        `ahead` lets it take a batch while one is under way.
        """
        self.instance = instance
        self.free = True
        self.only_full = False
        self._ahead = ahead
        self._sent = 0  # batches that the thread has not run yet
        self._taken_ns = AHEAD_COST_NS  # by the clock
        self._name = name
        self._loop = loop
        self._done = done
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._niceness = niceness
        self._policy = policy
        self._on_thread = bool(niceness) or policy is not None
        self._share = LoopShare(loop)

    def run(self, batch: Batch) -> bool:
        """Run the batch: True if it has run, False if it runs on the thread and `done` will be called."""
        batch.instance = self._name
        if self._share.take(batch, self._sent):
            execute(self.instance, batch)
            self._share.measure(batch.ended_ns - batch.started_ns)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._sent += 1
        self._share.begin_on_thread()
        self._batches.put(batch)
        self._set_free()
        return False

    @property
    def answers_here(self) -> bool:
        """Whether a batch that runs now, while a model waits for it on the loop, is answered at once."""
        return not (self._sent or self.instance.may_block or self._on_thread) and self._share.is_here

    @property
    def under_way(self) -> int:
        """Batches that its thread has not run yet."""
        return self._sent

    @property
    def runs_here(self) -> bool:
        """Whether batches run on the loop at present."""
        return not self._on_thread and not self.instance.may_block and self._share.is_here

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """A sequence has ended, none of whose requests runs."""
        self.instance.end_sequence(key, correlation_id, reason)

    def take_ahead(self, ahead: bool) -> None:
        """Whether to take a batch while one is under way, from the next one on."""
        self._ahead = ahead

    def leave(self) -> None:
        """Take no more batches; what was taken runs to its end."""
        self._ahead = False
        self._sent += 1  # one that never ends
        self._set_free()

    def close(self) -> None:
        """End the thread, once its batch is done. Blocks."""
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        try:
            if self._niceness:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
            if self._policy is not None:
                self._policy.place()
        except Exception:  # batches wait for this thread
            logger.exception("the thread of '%s' runs without its priority and host policy", self._name)
        # The processor's time, not the clock's: waiting for the interpreter's lock is no cost of the model.
        while (batch := self._next_batch()) is not None:
            began = thread_time_ns()
            execute(self.instance, batch)
            cost = thread_time_ns() - began
            self._loop.call_soon_threadsafe(self._finish, batch, cost)
            batch = None  # its tensors, which may hold memory of a GPU, are not kept until the next one comes

    def _next_batch(self) -> Batch | None:
        """What to run next, None if that was all."""
        try:
            return self._batches.get(timeout=REST_AFTER_S)
        except Empty:
            try:
                self.instance.rest()
            except Exception:  # batches will wait for this thread
                logger.exception("'%s' could not give back what it does not need at rest", self._name)
            return self._batches.get()

    def _finish(self, batch: Batch, cost: int) -> None:
        self._share.end_on_thread(batch, cost, may_move=not (self.instance.may_block or self._on_thread))
        taken = batch.ended_ns - batch.started_ns
        self._taken_ns += (taken - self._taken_ns) >> 3
        self._sent -= 1
        self._set_free()
        self._share.hand_on(self._done, self, batch)

    def _set_free(self) -> None:
        self.only_full = self._sent > 0
        ahead = self._ahead and self._sent == 1 and self._taken_ns < AHEAD_COST_NS
        self.free = not self._sent or ahead
