"""The strategy `direct`: each slot of an instance is a row of its batches.

A batch reaches up to the last slot that has a request; slots before it that have none get a null request, so that each
sequence stays in its row.
"""

from math import prod

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelSequenceBatching
from halimede.config.signature import Signature
from halimede.core.clock import MICROSECOND, Clock, Timer
from halimede.core.datatypes import BYTES
from halimede.core.errors import CancelledError
from halimede.core.requests import InferRequest, InferResponse, NullRequest
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.batching import BatchRunner, likeness
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.sequences.slots import LaneOwner, Slot


class DirectLane:
    """The rows of one instance, and its batches, one at a time.

    Attributes:
        runner: the instance.
        slots: one a row; one for a model without batching.
        away: the instance is not there.
        limiter: says when the instance may run a batch; None if it always may.
    """

    limiter: RateLimiter | None = None
    in_rows = True

    def __init__(
        self,
        signature: Signature,
        config: ModelSequenceBatching.StrategyDirect,
        clock: Clock,
        owner: LaneOwner,
        runner: BatchRunner,
    ) -> None:
        self.runner = runner
        self.away = False
        self.slots = [Slot(self, index) for index in range(max(1, signature.max_batch_size))]
        self._signature = signature
        self._clock = clock
        self._owner = owner
        self._ready: dict[int, Slot] = {}  # by index
        self._least = 0.0  # so many slots are to be ready before the delay is over
        self._delay = config.max_queue_delay_microseconds * MICROSECOND
        if self._delay:
            self._least = config.minimum_slot_utilization * len(self.slots)
        self._timer: Timer | None = None
        self._running = False
        self._looking = False
        self._likeness = likeness(signature)
        self._held: list[Batch] | None = None  # what is to be answered, while the next batch is formed

    def ready(self, slot: Slot) -> None:
        """The slot has a request to run."""
        self._ready[slot.index] = slot
        if not (self._running or self._looking):
            self._looking = True
            self._clock.call_soon(self._look)

    def again(self, slot: Slot) -> None:
        """The slot's request has run, and is to run again."""
        assert slot.request is not None
        slot.request.on_cancel = self._cancelled
        self.ready(slot)

    def withdraw(self, slot: Slot) -> None:
        """Do not run the slot's request, which was given back."""
        self._ready.pop(slot.index, None)

    def finished(self, runner: BatchRunner, batch: Batch) -> None:
        """The batch has run; the next one computes while it is answered."""
        self._running = False
        if self.limiter is not None:
            self.limiter.release(runner)
        held = self._held = [batch]
        self._owner.ended(batch)
        self._look()
        self._held = None
        for each in held:
            self._owner.answer(each)

    def returned(self, batch: Batch) -> None:
        """The requests wait again, in their rows."""
        self._running = False
        requests = [request for request in batch.requests if not request.is_null]
        self._owner.given_back(requests)
        for slot in self.slots:
            if slot.request in requests:
                self.again(slot)
        for request in requests:
            if request.cancelled:
                self._cancelled(request)

    def changed(self, runner: BatchRunner) -> None:
        """The instance takes batches, or takes none."""
        if self.limiter is not None:
            self.limiter.withdraw(runner)
        if not runner.healthy:
            self._running = False
        elif self._ready:
            self._look()

    def _look(self) -> None:
        """Run a batch if it is time for one."""
        self._looking = False
        while not self._running and self.runner.free and not self.away:
            slots = self._due()
            if not slots:
                return
            if self.limiter is not None:
                if not self.limiter.acquire(self.runner, self._permitted):
                    return
                borrowed_for = self.limiter.borrowed_for(self.runner)
                if borrowed_for is not None:
                    slots = [slot for slot in slots if _next(slot) in borrowed_for] or slots
            batch = self._form(slots)
            self._running = True
            self._owner.begins(batch)
            if not self.runner.run(batch):
                return
            self._running = False
            if self.limiter is not None:
                self.limiter.release(self.runner)
            self._owner.ended(batch)
            if self._held is not None:
                self._held.append(batch)
            else:
                self._owner.answer(batch)

    def _permitted(self, runner: BatchRunner) -> None:
        """The instance, which waited for the limiter, may run a batch."""
        self._look()

    def _due(self) -> list[Slot]:
        """The slots that have a request to run, by index; none if more of them are waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for slot in list(self._ready.values()):
            if slot.request is None and (slot.sequence is None or not slot.sequence.waiting):
                del self._ready[slot.index]  # its sequence was cancelled
        slots = [self._ready[index] for index in sorted(self._ready)]
        if slots and len(slots) < self._least:
            over = min(_next(slot).queued_ns for slot in slots) + self._delay
            if over > self._clock.now():
                self._timer = self._clock.call_at(over, self._look)
                return []
        return slots

    def _form(self, slots: list[Slot]) -> Batch:
        """A batch of the requests of these slots, as far as they fit the first one."""
        first = _next(slots[0])
        alike = None if self._likeness is None else self._likeness(first)
        requests: list[InferRequest] = []
        byte_size = nulls = 0
        for slot in slots:
            missing = slot.index - len(requests)
            if self._likeness is not None and self._likeness(_next(slot)) != alike:
                missing += 1
            else:
                del self._ready[slot.index]
            nulls += missing
            requests += [self._null_request(first) for _ in range(missing)]
            if len(requests) > slot.index:
                continue
            request = slot.request or self._owner.take(slot)
            request.on_cancel = None
            byte_size += request.byte_size
            requests.append(request)
        batch = Batch(self._signature, requests, len(requests), byte_size)
        batch.nulls = nulls
        return batch

    def _null_request(self, like: InferRequest) -> NullRequest:
        """A request of a slot without a sequence's, with inputs of the same shapes."""
        inputs = {name: _zeros(like.inputs[name]) for name in self._signature.inputs if name in like.inputs}
        inputs |= self._owner.controls.of_null_request()
        return NullRequest(like.model_name, inputs, _nobody, outputs=like.outputs)

    def _cancelled(self, request: InferRequest) -> None:
        """A request that was given back, or is to run again, was cancelled."""
        slot = next(slot for slot in self.slots if slot.request is request)
        self.withdraw(slot)
        error = CancelledError(request.prefix + "the request was cancelled while it was queued")
        self._owner.dropped(request, error)


def _next(slot: Slot) -> InferRequest:
    """The request that the slot has to run."""
    if slot.request is not None:
        return slot.request
    assert slot.sequence is not None
    return slot.sequence.waiting[0]


def _zeros(tensor: Tensor) -> Tensor:
    """A tensor of the same datatype and shape: zeros, or empty strings."""
    size = 4 * prod(tensor.shape) if tensor.datatype is BYTES else tensor.byte_size
    return Tensor(tensor.datatype, tensor.shape, bytes(size))


def _nobody(response: InferResponse | None, final: bool) -> None:
    """Nobody waits for the response to a null request."""
