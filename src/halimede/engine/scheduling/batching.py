"""The schedulers: which requests run together, when, and on which instance.

Both run entirely on the event loop. Requests that arrive in one turn of the loop are looked at once, at its end.
Nothing is polled: a look is taken when a request arrives, when an instance becomes free, and when a delay is over.

The rules of the dynamic batcher are those of Triton, with one difference. Triton forms batches ahead, while all
instances are busy, and then tops them up. Here a batch is formed when an instance is free to take it, by the
same rules, so that no batch is fixed earlier than it must be. An instance that takes one ahead gets a full one.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from halimede.backends.batch import Batch, Closing
from halimede.config.model_config_pb2 import ModelDynamicBatching
from halimede.config.signature import Signature
from halimede.core.clock import MICROSECOND, Clock, Timer
from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.queues import RequestQueue
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.statistics import FailureReason


class BatchRunner(Protocol):
    """An instance as a scheduler sees it.

    Attributes:
        free: it takes a batch. Only `run` and what leads to `Scheduler.finished` change it; if it changes otherwise,
            `Scheduler.changed` is called.
        only_full: a batch that it takes now has to be full, as it will wait for another.
        healthy: what it keeps of sequences is there; False while its process has ended.
    """

    free: bool
    only_full: bool
    healthy: bool

    def run(self, batch: Batch) -> bool:
        """Run the batch: True if it has run, False if `Scheduler.finished` will be called."""

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """A sequence has ended, none of whose requests runs: see `Instance.end_sequence`."""


class Outcome(Protocol):
    """Who is told what became of requests: the model."""

    def starting(self, batch: Batch) -> None:
        """The batch, of a decoupled model, is about to run."""

    def completed(self, batch: Batch) -> None:
        """The batch has run; its responses are to be sent."""

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The request will not run."""


class Scheduler(ABC):
    """Common to both schedulers: the queue, the free instances, cancellation.

    Subclasses say which requests form the next batch.

    Attributes:
        limiter: says when instances may run batches that need anything for that; None if none of them does.
    """

    limiter: RateLimiter | None = None

    def __init__(
        self, signature: Signature, queueing: ModelDynamicBatching, clock: Clock, outcome: Outcome
    ) -> None:
        self.signature = signature
        self.queue = RequestQueue(queueing, clock, self._timed_out)
        self._clock = clock
        self._outcome = outcome
        self._idle: list[BatchRunner] = []
        self._looking = False
        self._enough = 0  # rows that the queue must hold before it is worth a look
        self._max_size = 1  # rows of a batch that cannot grow
        self._closing: Closing | None = None  # of the batch that was formed last

    def start(self, runners: Sequence[BatchRunner]) -> None:
        """Let these instances take batches."""
        self._idle = list(reversed(runners))

    def enqueue(self, request: InferRequest) -> None:
        """Let the request run when its turn comes.

        Raises:
            UnavailableError: the queue is full.
        """
        if request.timeout_us or self.queue.expires:
            self.queue.push(request, busy=not self._idle or self._idle[-1].only_full)
        else:
            self.queue.push(request)
        request.on_cancel = self._cancelled
        if self._idle and not self._looking and self.queue.size >= self._enough:
            self._looking = True
            self._clock.call_soon(self._look)

    def finished(self, runner: BatchRunner, batch: Batch) -> None:
        """A batch has run, and its instance may be free again."""
        pace = self.queue.pace
        if pace.measuring:
            pace.ended(batch, self._clock.now())
        if self.limiter is not None:
            self.limiter.release(runner)
        if runner.free and runner not in self._idle:
            self._idle.insert(0 if runner.only_full else len(self._idle), runner)
        if self.queue.size:
            self._look()  # the next batch computes while this one is answered
        self._answer(batch)

    def returned(self, batch: Batch) -> None:
        """An instance has not begun the batch, and never will: its requests wait again."""
        self.queue.pace.returned(batch)
        for request in reversed(batch.requests):
            self.queue.restore(request)
            request.on_cancel = self._cancelled
            if request.cancelled:
                self._cancelled(request)
        if self._idle and not self._looking and self.queue.size:
            self._looking = True
            self._clock.call_soon(self._look)

    def changed(self, runner: BatchRunner) -> None:
        """An instance takes batches, or takes none, for another reason than a batch."""
        if runner in self._idle:
            self._idle.remove(runner)
        if self.limiter is not None:
            self.limiter.withdraw(runner)
        if runner.free:
            self._idle.append(runner)
            if self.queue.size:
                self._look()

    def join(self, runner: BatchRunner) -> None:
        """One more instance takes batches."""
        self.changed(runner)

    def forget(self, runner: BatchRunner) -> None:
        """An instance that takes no batches any more has run those that it had."""

    def refuse_all(self, error: HalimedeError) -> None:
        """Run none of the requests that wait."""
        while len(self.queue):
            request = self.queue.pop()
            request.on_cancel = None
            self._outcome.refused(request, error, FailureReason.REJECTED)

    def _look(self) -> None:
        self._looking = False
        queue, pace = self.queue, self.queue.pace
        if queue.expires:
            queue.expire()
        while self._idle and queue.size:
            if pace.measuring:
                queue.expire_late(self._max_size * len(self._idle))
            if self._idle[-1].only_full and not self._full_batch_waits():
                break
            requests = self._take() if self.limiter is None else self._take_limited(self.limiter)
            if requests is None:
                continue  # with the next instance
            if not requests:
                break
            size = byte_size = 0
            for request in requests:
                request.on_cancel = None
                size += request.batch_size
                byte_size += request.byte_size
            batch = Batch(self.signature, requests, size, byte_size)
            batch.closing = self._closing
            runner = self._idle.pop()
            self._started(batch)
            if pace.measuring:
                pace.began(batch, self._clock.now(), more=queue.size > 0)
            if self.signature.decoupled:
                self._outcome.starting(batch)
            if runner.run(batch):
                if pace.measuring:
                    pace.ended(batch, self._clock.now())
                if self.limiter is not None:
                    self.limiter.release(runner)
                self._idle.append(runner)
                self._answer(batch)
            elif runner.free:
                self._idle.insert(0, runner)  # it takes one more, but others have nothing to do

    @property
    def prompt_runner(self) -> BatchRunner | None:
        """The instance that would run a request at once; None if the request would wait."""
        return self._idle[-1] if self._idle and not self.queue.size else None

    @property
    def pending(self) -> int:
        """Requests that wait for an execution."""
        return len(self.queue)

    def _take_limited(self, limiter: RateLimiter) -> list[InferRequest] | None:
        """As `_take`, for the instance that is next, if it may run a batch now; None if it waits for that."""
        runner = self._idle[-1]
        if not limiter.acquire(runner, self._permitted):
            self._idle.pop()
            return None
        borrowed_for = limiter.borrowed_for(runner)
        if borrowed_for is not None:
            for request in self.queue:
                if request in borrowed_for:
                    self.queue.remove(request)
                    return [request]
        requests = self._take()  # also if that for which it borrowed waits for another one, or is gone
        if not requests:
            limiter.release(runner, executed=False)
        return requests

    def _permitted(self, runner: BatchRunner) -> None:
        """An instance that waited for the limiter may run a batch."""
        self._idle.append(runner)
        self._look()

    def _full_batch_waits(self) -> bool:
        """Whether the next batch would be a full one."""
        return self.queue.size >= self._max_size

    @abstractmethod
    def _take(self) -> list[InferRequest]:
        """The requests of the next batch, out of the queue; none if it is too early for one."""

    def _started(self, batch: Batch) -> None:
        """Remember the batch, which is about to run."""

    def _answer(self, batch: Batch) -> None:
        self._outcome.completed(batch)

    def _cancelled(self, request: InferRequest) -> None:
        self.queue.remove(request)
        request.on_cancel = None
        error = CancelledError(request.prefix + "the request was cancelled while it was queued")
        self._outcome.refused(request, error, FailureReason.CANCELED)

    def _timed_out(self, request: InferRequest) -> None:
        request.on_cancel = None
        error = UnavailableError("Request timeout expired")
        self._outcome.refused(request, error, FailureReason.REJECTED)


class DefaultScheduler(Scheduler):
    """Each request runs alone, in order of arrival, on whichever instance is free."""

    def __init__(self, signature: Signature, clock: Clock, outcome: Outcome) -> None:
        super().__init__(signature, ModelDynamicBatching(), clock, outcome)

    def _take(self) -> list[InferRequest]:
        return [self.queue.pop()]


class DynamicBatcher(Scheduler):
    """Requests run together, up to the largest batch that the model takes.

    A batch is sent when it has a preferred size, when it cannot grow (the next request would exceed the largest
    batch or does not fit the shapes of the others), or when its oldest request has waited for the queue delay.
    """

    def __init__(
        self, signature: Signature, config: ModelDynamicBatching, clock: Clock, outcome: Outcome
    ) -> None:
        super().__init__(signature, config, clock, outcome)
        self._max_size = max(1, signature.max_batch_size)
        self._preferred = frozenset(config.preferred_batch_size) or frozenset({self._max_size})
        self._largest = max(self._preferred)
        self._delay = config.max_queue_delay_microseconds * MICROSECOND
        self._likeness = likeness(signature)
        self._timer: Timer | None = None
        self._in_order: deque[Batch] | None = deque() if config.preserve_ordering else None
        self._answered: set[Batch] = set()

    @property
    def prompt_runner(self) -> BatchRunner | None:
        """The instance that would run a request at once; None if the request, or its answer, might wait."""
        return None if self._delay or self._in_order else super().prompt_runner

    def _take(self) -> list[InferRequest]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._enough = 0
        if not self._delay and len(self.queue) == 1:
            self._closing = Closing.INSTANCE_FREE
            return [self.queue.pop()]
        now = self._clock.now()
        count, wake = self._scan(now)
        if count == 0:
            self._timer = self._clock.call_at(wake, self._delay_over)
        pop = self.queue.pop
        return [pop() for _ in range(count)]

    def _delay_over(self) -> None:
        self._timer = None
        self._enough = 0
        self._look()

    def _scan(self, now: int) -> tuple[int, int]:
        """How many requests to send now; or none, and when to look again at the latest."""
        size = count = preferred_count = preferred_size = 0
        other_shapes = False
        oldest = now
        reference: object = None
        cut = False
        for request in self.queue:
            rows = request.batch_size or 1
            if count and size + rows > self._largest and not preferred_count:
                preferred_count, preferred_size = count, self._max_size
            if count and size + rows > self._max_size:
                cut = True
                break
            if self._likeness is not None:
                like = self._likeness(request)
                if count == 0:
                    reference = like
                elif like != reference:
                    cut = other_shapes = True
                    break
            size += rows
            count += 1
            oldest = min(oldest, request.queued_ns)
            if size in self._preferred:
                preferred_count, preferred_size = count, size
        overdue = now - oldest >= self._delay
        if preferred_count and not (self._delay and overdue):
            is_full = preferred_size >= self._max_size
            self._closing = Closing.FULL if is_full else Closing.PREFERRED_SIZE
            return preferred_count, 0
        if cut or size >= self._largest or overdue:
            if other_shapes:
                self._closing = Closing.OTHER_SHAPES
            elif cut or size >= self._largest:
                self._closing = Closing.FULL
            else:
                self._closing = Closing.DELAY_OVER if self._delay else Closing.INSTANCE_FREE
            return count, 0
        larger = [preferred for preferred in self._preferred if preferred > size]
        self._enough = min(larger) if self._likeness is None else 0
        return 0, oldest + self._delay

    def _started(self, batch: Batch) -> None:
        if self._in_order is not None:
            self._in_order.append(batch)

    def returned(self, batch: Batch) -> None:
        """As for any scheduler; answers do not wait for the batch's any more."""
        if self._in_order is not None:
            self._in_order.remove(batch)
        super().returned(batch)

    def _answer(self, batch: Batch) -> None:
        if self._in_order is None:
            self._outcome.completed(batch)
            return
        self._answered.add(batch)
        while self._in_order and self._in_order[0] in self._answered:
            first = self._in_order.popleft()
            self._answered.discard(first)
            self._outcome.completed(first)


def likeness(signature: Signature) -> Callable[[InferRequest], object] | None:
    """What two requests must have in common to share a batch; None if any two may.

    Inputs of variable size that are neither ragged nor filled up must have the same shape; with optional
    inputs, requests must give the same ones.
    """
    tokens = signature.tokens
    filled = () if tokens is None else tokens.fill
    shaped = [
        (spec.name, 2 if spec.name in filled else 1)
        for spec in signature.inputs.values()
        if -1 in spec.dims[spec.name in filled :] and not spec.ragged
    ]
    if tokens is not None and not filled:  # each request keeps its own tensors, and is as long as it is
        shaped = []
    optional = any(spec.optional for spec in signature.inputs.values())
    if not shaped and not optional:
        return None

    def key(request: InferRequest) -> object:
        inputs = request.inputs
        shapes = tuple(inputs[name].shape[axis:] if name in inputs else None for name, axis in shaped)
        return (shapes, frozenset(inputs)) if optional else shapes

    return key
