"""The strategy `oldest`: the slots of an instance share a dynamic batcher.

A slot's next request joins the queue when the one before is answered, so that a batch never holds two of one sequence.
"""

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelSequenceBatching
from halimede.config.signature import Signature
from halimede.core.clock import Clock
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.batching import BatchRunner, DynamicBatcher
from halimede.engine.scheduling.sequences.slots import LaneOwner, Slot
from halimede.engine.statistics import FailureReason


class OldestLane(DynamicBatcher):
    """The candidate sequences of one instance, and their batches.

    Attributes:
        runner: the instance.
        slots: one a candidate.
        away: the instance is not there.
    """

    in_rows = False

    def __init__(
        self,
        signature: Signature,
        config: ModelSequenceBatching.StrategyOldest,
        clock: Clock,
        owner: LaneOwner,
        runner: BatchRunner,
    ) -> None:
        batching = ModelDynamicBatching(
            preferred_batch_size=config.preferred_batch_size,
            max_queue_delay_microseconds=config.max_queue_delay_microseconds,
            preserve_ordering=config.preserve_ordering,
        )
        super().__init__(signature, batching, clock, _Outcome(owner))
        self.queue.own_timeouts = False  # they bound the wait for a slot
        self.runner = runner
        self.away = False
        self.slots = [Slot(self, index) for index in range(max(1, config.max_candidate_sequences))]
        self._owner = owner
        self._held: list[Batch] | None = None  # what is to be answered, while the next batch is formed
        self.start([runner])

    def ready(self, slot: Slot) -> None:
        """The slot has a request to run."""
        self.enqueue(self._owner.take(slot))

    def again(self, slot: Slot) -> None:
        """The slot's request has run, and is to run again."""
        assert slot.request is not None
        self.enqueue(slot.request)

    def withdraw(self, slot: Slot) -> None:
        """Do not run the slot's request, which waits."""
        assert slot.request is not None
        self.queue.remove(slot.request)

    def finished(self, runner: BatchRunner, batch: Batch) -> None:
        """As for any scheduler, but that the next requests of the batch's sequences may be in the next batch.

        Should that run at once, it is answered after this one.
        """
        if self.limiter is not None:
            self.limiter.release(runner)
        if runner.free and runner not in self._idle:
            self._idle.insert(0 if runner.only_full else len(self._idle), runner)
        held = self._held = [batch]
        self._owner.ended(batch)
        if self.queue.size:
            self._look()
        self._held = None
        for each in held:
            super()._answer(each)

    def returned(self, batch: Batch) -> None:
        """The requests wait again, as the first ones."""
        self._owner.given_back(batch.requests)
        super().returned(batch)

    def _started(self, batch: Batch) -> None:
        super()._started(batch)
        self._owner.begins(batch)

    def _answer(self, batch: Batch) -> None:
        """A batch has run at once."""
        self._owner.ended(batch)
        if self._held is not None:
            self._held.append(batch)
        else:
            super()._answer(batch)


class _Outcome:
    """Tells the sequence batcher what a lane's dynamic batcher says."""

    def __init__(self, owner: LaneOwner) -> None:
        self._owner = owner

    def starting(self, batch: Batch) -> None:
        """It was told before, as for batches of models that are not decoupled."""

    def completed(self, batch: Batch) -> None:
        """The batch is to be answered."""
        self._owner.answer(batch)

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The request was cancelled: nothing else can befall it, as a lane's queue has no policy."""
        self._owner.dropped(request, error)
