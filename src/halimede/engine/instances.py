"""Running batches on instances: each on a thread of its own, or, when that costs more than the work, on the loop.

Handing a batch to a thread and back costs tens of microseconds, more than a tiny model computes. So an instance that
never blocks runs its small batches on the event loop itself once their cost has been measured to be below that
hand-over, and goes back to its thread as soon as one was slow.
"""

import logging
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic_ns, thread_time_ns

from halimede.backends.base import Instance
from halimede.backends.batch import Batch, fail
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferResponse

logger = logging.getLogger("halimede")

INLINE_COST_NS = 60_000
"""An instance whose batches take less moves to the loop."""

THREAD_COST_NS = 2 * INLINE_COST_NS
"""An instance whose batches take more moves back to its thread. Between the two it stays where it is."""

INLINE_BYTES = 65_536
"""A batch of larger inputs never does: how long it takes says little of the small ones."""

MEASURED_RUNS = 3
"""The first runs on a thread only warm it up."""


class Runner:
    """Runs the batches of one instance, one at a time. Its methods are called on the event loop.

    Attributes:
        instance: what runs them.
        free: no batch is under way.
    """

    def __init__(
        self,
        name: str,
        instance: Instance,
        loop: AbstractEventLoop,
        done: Callable[["Runner", Batch], None],
        niceness: int = 0,
    ) -> None:
        """A runner that calls `done` on the loop for each batch that ran on its thread.

        With a `niceness`, as of `nice(1)`, no batch runs on the loop.
        """
        self.instance = instance
        self.free = True
        self._name = name
        self._loop = loop
        self._done = done
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._cost_ns = THREAD_COST_NS
        self._inline = False
        self._unmeasured = MEASURED_RUNS
        self._niceness = niceness

    def run(self, batch: Batch) -> bool:
        """Run the batch: True if it has run, False if it runs on the thread and `done` will be called."""
        if self._inline and batch.byte_size <= INLINE_BYTES:
            execute(self.instance, batch)
            self._measure(batch.ended_ns - batch.started_ns)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self.free = False
        self._batches.put(batch)
        return False

    def close(self) -> None:
        """End the thread, once its batch is done. Blocks."""
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        if self._niceness:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        # The processor's time, not the clock's: waiting for the interpreter's lock is no cost of the model.
        while (batch := self._batches.get()) is not None:
            began = thread_time_ns()
            execute(self.instance, batch)
            cost = thread_time_ns() - began
            self._loop.call_soon_threadsafe(self._finish, batch, cost)

    def _finish(self, batch: Batch, cost: int) -> None:
        if self._unmeasured > 0:
            self._unmeasured -= 1
        elif not (self.instance.may_block or self._niceness) and batch.byte_size <= INLINE_BYTES:
            self._measure(cost)
        self.free = True
        self._done(self, batch)

    def _measure(self, cost: int) -> None:
        """A moving average: a run that is slow by itself outweighs many fast ones, but not for long."""
        self._cost_ns += (cost - self._cost_ns) >> 3
        self._inline = self._cost_ns < (THREAD_COST_NS if self._inline else INLINE_COST_NS)


def execute(instance: Instance, batch: Batch) -> None:
    """Run the batch and see to it that every request has a response; whatever goes wrong becomes an error.

    Where that is safe, a batch that fails is run again request by request: one bad request shall not fail its
    neighbours.
    """
    batch.started_ns = monotonic_ns()
    error = _attempt(instance, batch)
    if error is not None:
        if instance.repeatable and len(batch.requests) > 1:
            _execute_singly(instance, batch)
        else:
            fail(batch, error)
    batch.ended_ns = monotonic_ns()


def _attempt(instance: Instance, batch: Batch) -> HalimedeError | None:
    """Run the batch: what went wrong, or None."""
    try:
        instance.execute(batch)
    except HalimedeError as error:
        return error
    except Exception as error:
        logger.exception("an execution failed")
        return InternalError(f"{type(error).__name__}: {error}")
    if not batch.signature.decoupled and len(batch.responses) != len(batch.requests):
        count = len(batch.responses)
        return InternalError(f"the backend gave {count} responses to {len(batch.requests)} requests")
    return None


def _execute_singly(instance: Instance, batch: Batch) -> None:
    """Run each request of the batch by itself."""
    responses: list[InferResponse] = []
    for request in batch.requests:
        single = Batch(batch.signature, [request], request.batch_size)
        error = _attempt(instance, single)
        responses += [InferResponse(error=error)] if error is not None else single.responses
    batch.responses = responses
