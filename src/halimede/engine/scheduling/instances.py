"""Running batches on instances: each on a thread of its own, or, when that costs more than the work, on the loop.

Handing a batch to a thread and back costs tens of microseconds, more than a tiny model computes. So an instance that
never blocks runs its small batches on the event loop itself once their cost has been measured to be below that
hand-over, and goes back to its thread as soon as one was slow.

While requests come one by one, each after the answer to the one before, a longer batch runs there too: nobody is kept
waiting by it. Whether they do is seen on the thread, to which the instance returns for it again and again.

An instance whose batches are short is handed a full one, where there is one, before the last has run on its thread.
Else it would have nothing to do for as long as it takes to tell the loop, and to be told by it.
"""

import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import thread_time_ns
from weakref import WeakKeyDictionary

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.core.host_policies import HostPolicy

INLINE_COST_NS = 60_000
"""An instance whose batches take less moves to the loop."""

THREAD_COST_NS = 2 * INLINE_COST_NS
"""An instance whose batches take more moves back to its thread. Between the two it stays where it is."""

INLINE_BYTES = 65_536
"""A batch of larger inputs never does: how long it takes says little of the small ones."""

MEASURED_RUNS = 3
"""The first runs on a thread only warm it up."""

ALONE_COST_NS = 500_000
"""An instance whose batches take more never runs them on the loop."""

MIN_WATCHED, MAX_WATCHED = 16, 2048
"""After so many runs on the thread, during which nothing else was to be run, the instance moves to the loop: twice as
many each time that something was, and as few as at first when nothing was."""

ALONE_RUNS = 256
"""Then so many runs are there, and the next again on the thread."""

REST_AFTER_S = 1.0
"""An instance rests when its thread has had nothing to run for so long."""

AHEAD_COST_NS = 20_000_000
"""An instance whose batches take more is sent none ahead: its requests may still be cancelled, or time out."""


class _LoopActivity:
    """What runs for an event loop beside a batch.

    Attributes:
        under_way: batches on threads.
        handing_on: a batch has ended, and what waited for it is being run.
        met: how often a batch was run while another was under way, or after it had waited for one.
    """

    __slots__ = ("handing_on", "met", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.handing_on = False
        self.met = 0


_ACTIVITIES: "WeakKeyDictionary[AbstractEventLoop, _LoopActivity]" = WeakKeyDictionary()
"""By the loop."""


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
        self._cost_ns = THREAD_COST_NS
        self._inline = False
        self._unmeasured = MEASURED_RUNS
        self._niceness = niceness
        self._policy = policy
        self._on_thread = bool(niceness) or policy is not None
        self._alone = 0  # so many runs are on the loop, as requests come one by one
        self._watched = self._to_watch = MIN_WATCHED
        self._met = 0
        self._activity = _ACTIVITIES.setdefault(loop, _LoopActivity())

    def run(self, batch: Batch) -> bool:
        """Run the batch: True if it has run, False if it runs on the thread and `done` will be called."""
        batch.instance = self._name
        if self._activity.under_way or self._activity.handing_on or len(batch.requests) > 1:
            self._activity.met += 1
            self._alone = 0
        if (self._inline or self._alone > 0) and not self._sent and batch.byte_size <= INLINE_BYTES:
            self._alone -= 1
            execute(self.instance, batch)
            self._measure(batch.ended_ns - batch.started_ns)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._sent += 1
        self._activity.under_way += 1
        self._batches.put(batch)
        self._set_free()
        return False

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
        if self._niceness:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        if self._policy is not None:
            self._policy.place()
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
            self.instance.rest()
            return self._batches.get()

    def _finish(self, batch: Batch, cost: int) -> None:
        if self._unmeasured > 0:
            self._unmeasured -= 1
        elif not (self.instance.may_block or self._on_thread) and batch.byte_size <= INLINE_BYTES:
            self._measure(cost)
            self._watch()
        taken = batch.ended_ns - batch.started_ns
        self._taken_ns += (taken - self._taken_ns) >> 3
        self._sent -= 1
        self._set_free()
        self._activity.under_way -= 1
        self._activity.handing_on = True
        try:
            self._done(self, batch)
        finally:
            self._activity.handing_on = False

    def _set_free(self) -> None:
        self.only_full = self._sent > 0
        ahead = self._ahead and self._sent == 1 and self._taken_ns < AHEAD_COST_NS
        self.free = not self._sent or ahead

    def _watch(self) -> None:
        """A batch has run on the thread: move to the loop if nothing else was to be run for a while."""
        if self._met != self._activity.met:
            self._met = self._activity.met
            self._to_watch = self._watched = min(2 * self._to_watch, MAX_WATCHED)
            return
        self._watched -= 1
        if self._watched <= 0 and self._cost_ns < ALONE_COST_NS:
            self._alone = ALONE_RUNS
            self._to_watch = self._watched = MIN_WATCHED

    def _measure(self, cost: int) -> None:
        """A moving average: a run that is slow by itself outweighs many fast ones, but not for long."""
        self._cost_ns += (cost - self._cost_ns) >> 3
        self._inline = self._cost_ns < (THREAD_COST_NS if self._inline else INLINE_COST_NS)
        if self._cost_ns >= ALONE_COST_NS:
            self._alone = 0
