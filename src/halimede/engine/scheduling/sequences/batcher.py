"""The sequence batcher: which sequences there are, which slots they hold, and which wait for one.

Each instance has a lane of slots. A sequence holds a slot from its first request to its last, so that its requests
run on one instance, one after the other; a sequence that finds no slot waits in the backlog. How the requests of a
lane form batches is the strategy's affair: see `direct` and `oldest`.

A slot is free for the next sequence as soon as the last request of its sequence is in a batch; the next one's first
request runs when that has been answered.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import compress, islice, takewhile

from halimede.backends.batch import DEFERRED, Batch
from halimede.config.model_config_pb2 import ModelSequenceBatching
from halimede.config.signature import Signature
from halimede.core.clock import MICROSECOND, Clock, Timer
from halimede.core.errors import CancelledError, HalimedeError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse, Respond
from halimede.core.sequences import CANCELLED, ENDED, IDLE, LOST, RESTARTED, UNLOADED
from halimede.engine.scheduling.batching import BatchRunner, Outcome
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.sequences.controls import Controls
from halimede.engine.scheduling.sequences.direct import DirectLane
from halimede.engine.scheduling.sequences.free_slots import FreeSlots
from halimede.engine.scheduling.sequences.oldest import OldestLane
from halimede.engine.scheduling.sequences.slots import Lane, Sequence, Slot
from halimede.engine.statistics import FailureReason

logger = logging.getLogger("halimede")

_REAPED_AT_ONCE = 1000
"""Sequences that end in one turn of the loop for being idle: some milliseconds."""

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class SequenceBatcher:
    """The scheduler of a model with `sequence_batching`. Lives on the event loop.

    Attributes:
        pending: requests that wait for an execution.
        open: sequences that are not over, or have requests that are not answered.
        begun: sequences that there have been.
        stopping: no sequence may begin any more.
        when_over: called when `open` becomes 0.
        limiter: says when instances may run batches that need anything for that; None if none of them does.
    """

    limiter: RateLimiter | None = None

    def __init__(
        self, name: str, signature: Signature, config: ModelSequenceBatching, clock: Clock, outcome: Outcome
    ) -> None:
        self.pending = 0
        self.open = 0
        self.begun = 0
        self.stopping = False
        self.when_over: Callable[[], None] = _nothing
        self.controls = Controls(signature, config)
        self._name = name
        self._signature = signature
        self._config = config
        self._clock = clock
        self._outcome = outcome
        self._idle_ns = config.max_sequence_idle_microseconds * MICROSECOND
        self._live: dict[int | str, Sequence] = {}  # those that accept requests, the longest silent one first
        self._lost: dict[int | str, int] = {}  # ids whose state went with their instance, and when
        self._taken: dict[InferRequest, Slot] = {}
        self._backlog: deque[Sequence] = deque()  # those without waiting requests are gone
        self._lanes: dict[BatchRunner, Lane] = {}
        self._leaving: dict[
            Lane, Callable[[], None]
        ] = {}  # no sequence begins there, and who waits for the last
        self._free = FreeSlots()
        self._serving = False
        self._keys = 0
        self._reaper: Timer | None = None  # there is one while anything is live or lost

    def start(self, runners: Iterable[BatchRunner]) -> None:
        """Let sequences run on these instances."""
        for runner in runners:
            lane: Lane
            if self._config.HasField("oldest"):
                lane = OldestLane(self._signature, self._config.oldest, self._clock, self, runner)
            else:
                lane = DirectLane(self._signature, self._config.direct, self._clock, self, runner)
            lane.limiter = self.limiter
            self._lanes[runner] = lane
            for slot in lane.slots:
                self._free.add(slot)

    def join(self, runner: BatchRunner) -> None:
        """Let sequences run on one more instance."""
        self.start([runner])
        self._serve_backlog()

    def leave(self, runner: BatchRunner, left: Callable[[], None]) -> None:
        """Let no more sequences begin on an instance; `left` is called when those that it has are over."""
        lane = self._lanes[runner]
        self._leaving[lane] = left
        self._free.withdraw(lane)
        self._look_left(lane)

    def forget(self, runner: BatchRunner) -> None:
        """An instance whose sequences are over runs nothing any more."""
        lane = self._lanes.pop(runner, None)
        if lane is not None:
            del self._leaving[lane]

    # Requests

    def enqueue(self, request: InferRequest) -> None:
        """Let the request run when its turn comes.

        Raises:
            InvalidArgumentError: it is no request that its sequence may have now.
            UnavailableError: its sequence is lost, or it would begin one while the server stops.
        """
        correlation_id = request.sequence_id
        self.check_batch_size(request)
        if not correlation_id:
            msg = f"inference request to model '{self._name}' must specify a non-zero or non-empty correlation ID"
            raise InvalidArgumentError(msg)
        sequence = self._live.get(correlation_id)
        if request.sequence_start:
            sequence = self._started(correlation_id, sequence)
        elif sequence is None:
            raise self._no_start(correlation_id)
        sequence.seen_ns = self._clock.now()
        self._live.pop(correlation_id, None)
        if request.sequence_end:
            sequence.over = ENDED
        else:
            self._live[correlation_id] = sequence  # the last one now
            if self._reaper is None:
                self._arm()
        self.accept(sequence, request)

    def check_batch_size(self, request: InferRequest) -> None:
        """Return if the request has one row.

        Raises:
            InvalidArgumentError: it has more.
        """
        if request.batch_size > 1:
            msg = (
                f"inference request to model '{self._name}' must specify batch-size 1 due to requirements of "
                f"sequence batcher"
            )
            raise InvalidArgumentError(msg)

    def _started(self, correlation_id: int | str, present: Sequence | None) -> Sequence:
        """The sequence that a request with the START flag belongs to; `present` has not ended yet."""
        if self.stopping:
            raise UnavailableError(STOPPING)
        self.controls.check(correlation_id)
        self._lost.pop(correlation_id, None)
        if present is None:
            self.open += 1
            self.begun += 1
            return Sequence(correlation_id, self)
        logger.warning(
            "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence "
            "start. Previous sequence will be terminated early.",
            correlation_id,
            self._name,
        )
        return present

    def _no_start(self, correlation_id: int | str) -> HalimedeError:
        """Why a request without the START flag belongs to no sequence."""
        if correlation_id in self._lost:
            return self.lost_error(correlation_id)
        msg = (
            f"inference request for sequence {correlation_id} to model '{self._name}' must specify the START flag "
            f"on the first request of the sequence"
        )
        return InvalidArgumentError(msg)

    def lost_error(self, correlation_id: int | str) -> UnavailableError:
        """What the requests get that cannot go on."""
        msg = (
            f"sequence {correlation_id} of model '{self._name}' is lost: the instance that kept its state has ended. "
            f"Begin it again with a request that has the START flag"
        )
        return UnavailableError(msg)

    def accept(self, sequence: Sequence, request: InferRequest) -> None:
        """Let the request wait for its turn in its sequence, and that for a slot if it has none."""
        request.on_cancel = sequence.cancelled
        sequence.waiting.append(request)
        self.pending += 1
        slot = sequence.slot
        if slot is not None:
            if slot.request is None:
                slot.lane.ready(slot)
        elif len(sequence.waiting) == 1 and (free := self._free.next()) is not None:
            self._place(sequence, free)
        else:
            if len(sequence.waiting) == 1:
                self._backlog.append(sequence)
            if request.timeout_us:
                self._expire_at(sequence, self._clock.now() + request.timeout_us * MICROSECOND)

    def holds(self, correlation_id: int | str) -> bool:
        """Whether there is a sequence of that id that accepts requests."""
        return correlation_id in self._live

    # Slots

    def _place(self, sequence: Sequence, slot: Slot) -> None:
        """Give the sequence the slot."""
        sequence.slot, slot.sequence = slot, sequence
        sequence.clear_expiry()
        if sequence.correlation_id in self._live and not sequence.over:  # it was not silent, but waited
            sequence.seen_ns = self._clock.now()
            self._live[sequence.correlation_id] = self._live.pop(sequence.correlation_id)
        if slot.request is None:
            slot.lane.ready(slot)

    def _vacate(self, slot: Slot) -> None:
        """Give the slot, whose sequence has no more requests to be run, to the next sequence."""
        slot.sequence = None
        if slot.lane in self._leaving:
            self._look_left(slot.lane)
        elif not slot.lane.away:
            self._free.add(slot)
            self._serve_backlog()

    def _serve_backlog(self) -> None:
        """Give free slots to the sequences that wait for one, the one that waits longest first."""
        if self._serving:
            return  # one of them has left its slot again, as its last request is to be run
        self._serving = True
        while self._backlog:
            if not self._backlog[0].waiting:
                self._backlog.popleft()
                continue
            slot = self._free.next()
            if slot is None:
                break
            self._place(self._backlog.popleft(), slot)
        self._serving = False

    # Running, as lanes tell

    def take(self, slot: Slot) -> InferRequest:
        """The next request of the slot's sequence, with all that its model is to be told."""
        sequence = slot.sequence
        assert sequence is not None
        request = sequence.waiting.popleft()
        if request.sequence_start and sequence.key:
            self._forget(slot, sequence, RESTARTED)
        if not sequence.key:
            self._keys += 1
            sequence.key = self._keys
        request.sequence_key = sequence.key
        self.controls.add(request)
        request.respond = partial(self._respond, slot, request, request.respond)
        slot.request, slot.of, slot.executing = request, sequence, False
        self._taken[request] = slot
        if sequence.over and not sequence.waiting:
            self._vacate(slot)
        return request

    def begins(self, batch: Batch) -> None:
        """The batch is about to run."""
        for request in batch.requests:
            slot = self._taken.get(request)
            if slot is not None:
                slot.executing = True
                self.pending -= 1
                if slot.of is not None:
                    slot.of.begun = True
        if self._signature.decoupled:
            self._outcome.starting(batch)

    def ended(self, batch: Batch) -> None:
        """The batch has run: let the sequences go on whose requests are answered with it."""
        again = batch.rescheduled
        for request in again:
            self._reschedule(request)
        if self._signature.decoupled:
            return  # they go on when the last response is sent
        for request, response in zip(batch.requests, batch.responses, strict=True):
            slot = self._taken.get(request)
            if slot is not None and response is not DEFERRED:
                self.release(slot)

    def _reschedule(self, request: InferRequest) -> None:
        """The model wants the request again."""
        slot = self._taken.get(request)
        if slot is None:
            return  # it had its last response
        slot.executing = False
        self.pending += 1
        if request.cancelled:
            self._drop(slot, _cancelled_error(request))
            return
        request.sequence_start = request.sequence_end = False
        self.controls.add(request)
        if request.congested:  # the client is slower than the model
            slot.parked = True
            request.on_drain = self._drained
            request.on_cancel = self._cancelled_while_parked
        else:
            slot.lane.again(slot)

    def _drained(self, request: InferRequest) -> None:
        """The client has taken what a request has had so far: let it run again."""
        request.on_drain = None
        slot = self._taken[request]
        slot.parked = False
        slot.lane.again(slot)

    def _cancelled_while_parked(self, request: InferRequest) -> None:
        self._drop(self._taken[request], _cancelled_error(request))

    def answer(self, batch: Batch) -> None:
        """The batch is to be answered; nobody waits for the responses to null requests."""
        if batch.nulls:
            real = [not request.is_null for request in batch.requests]
            batch.responses = list(compress(batch.responses, real))
            batch.requests = list(compress(batch.requests, real))
        self._outcome.completed(batch)

    def given_back(self, requests: Collection[InferRequest]) -> None:
        """A batch that was sent will not run: its requests wait again."""
        for request in requests:
            slot = self._taken.get(request)
            if slot is not None:
                slot.executing = False
                self.pending += 1
                if request.sequence_start and slot.of is not None:
                    slot.of.begun = False

    def _respond(
        self,
        slot: Slot,
        request: InferRequest,
        respond: Respond,
        response: InferResponse | None,
        final: bool,
    ) -> None:
        if final:
            request.respond = respond  # it does not hold itself any more: no cycle is left for the collector
            if slot.request is request:
                self.release(slot)
        respond(response, final)

    def release(self, slot: Slot) -> None:
        """The slot's request is answered, or will be in this turn of the loop."""
        request, sequence = slot.request, slot.of
        assert request is not None
        assert sequence is not None
        self._empty(slot)
        self._settle(sequence, slot)
        if slot.sequence is not None and slot.sequence.waiting:
            slot.lane.ready(slot)

    def _empty(self, slot: Slot) -> None:
        """Nothing is under way in the slot any more."""
        if slot.parked and slot.request is not None:
            slot.request.on_drain = None
        if slot.request is not None:
            del self._taken[slot.request]
        slot.request = slot.of = None
        slot.executing = slot.parked = False
        self._free.emptied(slot)
        if slot.lane in self._leaving:
            self._look_left(slot.lane)

    def _look_left(self, lane: Lane) -> None:
        """Tell who waits for it that an instance has no sequences any more, if that is so."""
        if all(slot.sequence is None and slot.of is None for slot in lane.slots):
            self._leaving[lane]()

    def _settle(self, sequence: Sequence, slot: Slot) -> None:
        """Free the slot of a sequence that is over if nothing of it waits; end it if nothing is under way either."""
        if not sequence.over or sequence.waiting:
            return
        if slot.sequence is sequence:
            self._vacate(slot)
        if slot.of is sequence:
            return  # its last request is under way
        self._forget(slot, sequence, sequence.over)
        self._count_over()

    def _forget(self, slot: Slot, sequence: Sequence, reason: str) -> None:
        """Let the instance forget what it keeps of the sequence."""
        if sequence.begun:
            slot.lane.runner.end_sequence(sequence.key, sequence.correlation_id, reason)
        sequence.key, sequence.begun = 0, False

    def _count_over(self) -> None:
        self.open -= 1
        if not self.open:
            self.when_over()

    # Ends before their time

    def cancel(self, sequence: Sequence) -> None:
        """Run none of the requests of the sequence that wait, as one of them was cancelled."""
        self._abandon(sequence, CANCELLED, _cancelled_error, FailureReason.CANCELED)

    def _abandon(
        self,
        sequence: Sequence,
        over: str,
        error: Callable[[InferRequest], HalimedeError],
        reason: FailureReason,
    ) -> None:
        """End the sequence: run none of its requests that wait."""
        refused = self._close(sequence, over)
        slot = sequence.slot
        if slot is None:
            self._count_over()
        else:
            if slot.of is sequence and not slot.executing:
                refused.insert(0, self._withdrawn(slot))
            self._settle(sequence, slot)
        for request in refused:
            self._refuse(request, error(request), reason)

    def _close(self, sequence: Sequence, over: str) -> list[InferRequest]:
        """Accept no more requests for the sequence, and take out those that wait."""
        if self._live.get(sequence.correlation_id) is sequence:
            del self._live[sequence.correlation_id]
        sequence.clear_expiry()
        sequence.over = over
        waiting = list(sequence.waiting)
        sequence.waiting.clear()
        return waiting

    def _withdrawn(self, slot: Slot) -> InferRequest:
        """Take back the slot's request, which has not begun."""
        request = slot.request
        assert request is not None
        if not slot.parked:
            slot.lane.withdraw(slot)
        self._empty(slot)
        return request

    def _refuse(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        self.pending -= 1
        request.on_cancel = None
        self._outcome.refused(request, error, reason)

    def dropped(self, request: InferRequest, error: HalimedeError) -> None:
        """A request that a lane was to run was cancelled."""
        self._drop(self._taken[request], error)

    def _drop(self, slot: Slot, error: HalimedeError) -> None:
        """The slot's request was cancelled, and its lane has it no more: so is its sequence."""
        request, sequence = slot.request, slot.of
        assert request is not None
        assert sequence is not None
        refused = self._close(sequence, CANCELLED)
        self.release(slot)
        self._refuse(request, error, FailureReason.CANCELED)
        for each in refused:
            self._refuse(each, _cancelled_error(each), FailureReason.CANCELED)

    def _expire_at(self, sequence: Sequence, when: int) -> None:
        """Let a sequence that waits for a slot wait no longer than that."""
        if sequence.expiry is not None:
            if sequence.expiry.when <= when:
                return
            sequence.expiry.cancel()
        sequence.expiry = self._clock.call_at(when, self._expired, sequence)

    def _expired(self, sequence: Sequence) -> None:
        error = UnavailableError("timeout of the corresponding sequence has been expired")
        self._abandon(sequence, CANCELLED, lambda _: error, FailureReason.REJECTED)

    def _arm(self) -> None:
        """Look again when the sequence that is silent longest has been for too long."""
        times = [next(iter(self._live.values())).seen_ns] if self._live else []
        times += [next(iter(self._lost.values()))] if self._lost else []
        self._reaper = self._clock.call_at(min(times) + self._idle_ns, self._reap) if times else None

    def _reap(self) -> None:
        """End the sequences that have been silent for too long, and forget those that were lost as long ago."""
        now = self._clock.now()
        before = now - self._idle_ns
        # looked up at once: a dictionary takes the longer to find its first entry the more were deleted before it
        silent = takewhile(lambda sequence: sequence.seen_ns <= before, self._live.values())
        due = list(islice(silent, _REAPED_AT_ONCE))
        for sequence in due:
            if sequence.seen_ns > before:
                continue  # it has got a slot meanwhile
            del self._live[sequence.correlation_id]
            if sequence.slot is None:  # it waits for a slot
                sequence.seen_ns = now
                self._live[sequence.correlation_id] = sequence
                continue
            sequence.over = IDLE
            self._settle(sequence, sequence.slot)
        if len(due) == _REAPED_AT_ONCE:
            self._clock.call_soon(self._reap)  # the rest
            return
        for correlation_id, _ in list(takewhile(lambda entry: entry[1] <= before, self._lost.items())):
            del self._lost[correlation_id]
        self._arm()

    # What instances tell

    def finished(self, runner: BatchRunner, batch: Batch) -> None:
        """A batch has run, and its instance may be free again."""
        self._lanes[runner].finished(runner, batch)

    def returned(self, batch: Batch) -> None:
        """An instance has not begun the batch, and never will: its requests wait again."""
        slot = next(self._taken[request] for request in batch.requests if request in self._taken)
        slot.lane.returned(batch)

    def changed(self, runner: BatchRunner) -> None:
        """An instance takes batches, or takes none, for another reason than a batch."""
        lane = self._lanes.get(runner)
        if lane is None:
            return  # it gets no sequences
        if not runner.healthy and not lane.away:
            lane.away = True
            self._lose(lane)
        elif runner.healthy and lane.away:
            lane.away = False
            for slot in lane.slots:
                if slot.sequence is None and lane not in self._leaving:
                    self._free.add(slot)
            self._serve_backlog()
        lane.changed(runner)

    def _lose(self, lane: Lane) -> None:
        """The instance has ended, and with it what it kept: its sequences go on only where they begin anew."""
        self._free.withdraw(lane)
        refused: list[InferRequest] = []
        for slot in lane.slots:
            for sequence in dict.fromkeys((slot.of, slot.sequence)):
                if sequence is None or not sequence.begun:
                    continue
                sequence.key, sequence.begun = 0, False
                if slot.of is sequence and not slot.executing:
                    refused.append(self._withdrawn(slot))
                while sequence.waiting and not sequence.waiting[0].sequence_start:
                    refused.append(sequence.waiting.popleft())
                if sequence.waiting:
                    continue  # it begins anew
                if self._live.get(sequence.correlation_id) is sequence:
                    del self._live[sequence.correlation_id]
                    self._lost[sequence.correlation_id] = self._clock.now()
                sequence.over = sequence.over or LOST
                self._settle(sequence, slot)
            if slot.request is None and slot.sequence is not None and slot.sequence.waiting:
                lane.ready(slot)
        for request in refused:
            self._refuse(request, self.lost_error(request.sequence_id), FailureReason.REJECTED)

    def refuse_all(self, error: HalimedeError) -> None:
        """Run none of the requests that wait."""
        for sequence in self._every():
            if sequence.waiting or (sequence.slot is not None and not sequence.slot.executing):
                self._abandon(sequence, UNLOADED, lambda _: error, FailureReason.REJECTED)

    def _every(self) -> list[Sequence]:
        """Every sequence that is not over, or has requests."""
        slots = [slot for lane in self._lanes.values() for slot in lane.slots]
        found = [sequence for slot in slots for sequence in (slot.of, slot.sequence) if sequence is not None]
        found += self._live.values()
        found += [sequence for sequence in self._backlog if sequence.waiting]
        return list(dict.fromkeys(found))

    # The end

    def stop(self) -> None:
        """Let no sequence begin; those that there are go on."""
        self.stopping = True

    def end_sequences(self) -> None:
        """Let those that there are end with the requests that they have."""
        self.stopping = True
        for sequence in list(self._live.values()):
            del self._live[sequence.correlation_id]
            sequence.over = UNLOADED
            if sequence.slot is not None:
                self._settle(sequence, sequence.slot)


def _cancelled_error(request: InferRequest) -> CancelledError:
    return CancelledError(request.prefix + "the request was cancelled while it was queued")


def _nothing() -> None:
    """Nobody waits for the sequences to be over."""
