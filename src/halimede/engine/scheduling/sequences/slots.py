"""What the sequence batcher knows of sequences and of the slots that they hold on instances."""

from collections import deque
from typing import Protocol

from halimede.backends.batch import Batch
from halimede.core.clock import Timer
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.batching import BatchRunner
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.sequences.controls import Controls


class Sequences(Protocol):
    """Who is told of a sequence's requests."""

    def cancel(self, sequence: "Sequence") -> None:
        """A request of the sequence that waits was cancelled."""


class Sequence:
    """Requests of one correlation id, from START to END.

    Attributes:
        correlation_id: what clients call it.
        key: under which its instance keeps what belongs to it; 0 until its first request is sent there.
        begun: a request with this key has begun to run.
        waiting: its requests that wait, in order.
        slot: the one that it holds, or has held; None while it waits for one.
        over: why no more requests are accepted, one of `core.sequences`; "" if they are.
        seen_ns: when its last request came.
        expiry: goes off when it has waited too long for a slot; None if it may wait.
    """

    __slots__ = (
        "_sequences",
        "begun",
        "correlation_id",
        "expiry",
        "key",
        "over",
        "seen_ns",
        "slot",
        "waiting",
    )

    def __init__(self, correlation_id: int | str, sequences: Sequences) -> None:
        self.correlation_id = correlation_id
        self.key = 0
        self.begun = False
        self.waiting: deque[InferRequest] = deque()
        self.slot: Slot | None = None
        self.over = ""
        self.seen_ns = 0
        self.expiry: Timer | None = None
        self._sequences = sequences

    def cancelled(self, request: InferRequest) -> None:
        """A request that waits was cancelled: so is the sequence."""
        self._sequences.cancel(self)

    def clear_expiry(self) -> None:
        """Let it wait for as long as it must."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Slot:
    """A place for a sequence on an instance, which runs one request at a time.

    Attributes:
        lane: the instance's.
        index: its number there, which is its row in a direct batch.
        sequence: the sequence that holds it.
        request: the request that was taken out of a sequence to be run, until it is answered.
        of: that sequence, which the next one may have succeeded already.
        executing: that request has begun.
        parked: that request is to run again when its client has taken what it has had so far.
    """

    __slots__ = ("executing", "index", "lane", "of", "parked", "request", "sequence")

    def __init__(self, lane: "Lane", index: int) -> None:
        self.lane = lane
        self.index = index
        self.sequence: Sequence | None = None
        self.request: InferRequest | None = None
        self.of: Sequence | None = None
        self.executing = False
        self.parked = False


class Lane(Protocol):
    """The slots of one instance, and what makes batches of the requests in them.

    Attributes:
        runner: the instance.
        slots: its slots.
        away: the instance is not there: sequences that wait for a slot get none of these.
        limiter: says when the instance may run a batch; None if it always may.
        in_rows: a slot is the row of a batch, so that the first ones are the best, also while their request runs.
    """

    in_rows: bool

    runner: BatchRunner
    slots: list[Slot]
    away: bool
    limiter: RateLimiter | None

    def ready(self, slot: Slot) -> None:
        """The slot, in which no request is under way, has a request to run."""

    def again(self, slot: Slot) -> None:
        """The slot's request has run, and is to run again."""

    def withdraw(self, slot: Slot) -> None:
        """Do not run the slot's request, which has not begun."""

    def finished(self, runner: BatchRunner, batch: Batch) -> None:
        """A batch has run, and the instance may be free again."""

    def returned(self, batch: Batch) -> None:
        """The instance will not run a batch that it was sent: its requests wait again."""

    def changed(self, runner: BatchRunner) -> None:
        """The instance takes batches, or takes none, for another reason than a batch."""


class LaneOwner(Protocol):
    """What lanes need of the sequence batcher.

    Attributes:
        controls: makes control inputs.
    """

    controls: Controls

    def take(self, slot: Slot) -> InferRequest:
        """The next request of the slot's sequence, which has one."""

    def begins(self, batch: Batch) -> None:
        """The batch is about to run."""

    def ended(self, batch: Batch) -> None:
        """The batch has run: slots may become ready."""

    def answer(self, batch: Batch) -> None:
        """The batch is to be answered."""

    def given_back(self, requests: list[InferRequest]) -> None:
        """A batch that was sent will not run."""

    def dropped(self, request: InferRequest, error: HalimedeError) -> None:
        """A request that was taken was cancelled before it ran."""
