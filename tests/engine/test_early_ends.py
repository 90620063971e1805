"""Requests that end before their time, in every scheduler: nothing is left of them, and the next ones are served."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from halimede.core.errors import CancelledError, HalimedeError, InternalError, UnavailableError
from halimede.engine.statistics import FailureReason
from tests.engine.scheduling.rate_limits.declarations import needing
from tests.engine.stepped import Bench, Execution, Sent

TIMEOUT_US = 1_000


@dataclass(frozen=True)
class Kind:
    """How a model is scheduled.

    Attributes:
        scheduling: what its configuration says of that.
        decoupled: it may send any number of responses.
        steps: it is an ensemble of so many such models, one after the other; 0 if it is none.
        sequences: a request belongs to a sequence.
        again: it may have a request come again before it answers that.
        limited: it needs a resource that another model needs, too.
        called: requests come from a model that calls it.
        default: a request that gives no timeout has one of the model.
    """

    scheduling: str = ""
    decoupled: bool = False
    steps: int = 0
    sequences: bool = False
    again: bool = False
    limited: bool = False
    called: bool = False
    default: bool = False

    @property
    def expires(self) -> bool:
        """A request that waits has a time for that: in a queue, or until its sequence has a slot."""
        return not (self.limited and self.sequences)

    @property
    def expired(self) -> str:
        """What a request is told that has waited too long."""
        if self.sequences or self.again:
            return "timeout of the corresponding sequence has been expired"
        if self.steps:
            return "in ensemble 'm', Request timeout expired (in step 0, model 'm0')"
        return "Request timeout expired"

    def load(self, bench: Bench) -> None:
        """Load the model, as `m`."""
        limits = needing("R:1:global") if self.limited else None
        for number in range(self.steps):
            bench.model(f"m{number}", "", rows=0, decoupled=self.decoupled)
        if self.steps:
            bench.ensemble("m", *(f"m{number}" for number in range(self.steps)))
        else:
            bench.model("m", self.scheduling, rows=1, decoupled=self.decoupled, needs=limits)
        if self.limited:
            bench.model("other", "", rows=1, decoupled=False, needs=limits)


DIRECT = "sequence_batching { direct { } }"
OLDEST = "sequence_batching { oldest { max_candidate_sequences: 1 } }"
ITERATIVE_DIRECT = "sequence_batching { iterative_sequence: true direct { } }"
ITERATIVE_OLDEST = "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 1 } }"
KINDS = {
    "default": Kind(),
    "dynamic": Kind("dynamic_batching { }"),
    "priorities": Kind("dynamic_batching { priority_levels: 2 default_priority_level: 2 }"),
    "queue policy": Kind(
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 } }", default=True
    ),
    "preserve_ordering": Kind("dynamic_batching { preserve_ordering: true }"),
    "cached": Kind("response_cache { enable: true }"),
    "direct": Kind(DIRECT, sequences=True),
    "oldest": Kind(OLDEST, sequences=True),
    "iterative, direct": Kind(ITERATIVE_DIRECT, again=True),
    "iterative, oldest": Kind(ITERATIVE_OLDEST, again=True),
    "ensemble": Kind(steps=2),
    "decoupled": Kind(decoupled=True),
    "decoupled, dynamic": Kind("dynamic_batching { }", decoupled=True),
    "decoupled, direct": Kind(DIRECT, decoupled=True, sequences=True),
    "decoupled, oldest": Kind(OLDEST, decoupled=True, sequences=True),
    "decoupled, iterative": Kind(ITERATIVE_OLDEST, decoupled=True, again=True),
    "decoupled ensemble": Kind(decoupled=True, steps=2),
    "called": Kind(called=True),
    "called, decoupled": Kind(decoupled=True, called=True),
    "called ensemble": Kind(steps=2, called=True),
    "rate limited": Kind(limited=True),
    "rate limited, dynamic": Kind("dynamic_batching { }", limited=True),
    "rate limited, direct": Kind(DIRECT, sequences=True, limited=True),
    "rate limited, oldest": Kind(OLDEST, sequences=True, limited=True),
}


class Case:
    """A model of a kind, and one request to it that may end before its time."""

    def __init__(self, kind: Kind, *, workers: bool) -> None:
        self.kind = kind
        self.bench = Bench(workers=workers)
        kind.load(self.bench)
        self.before: Sent | None = None
        self.holding = False  # a sequence that holds the only slot
        self.sequences = 0

    def send(self, value: float, *, timeout_us: int = 0, flags: str = "SE") -> Sent:
        """A request, with a sequence of its own if it needs one."""
        if self.kind.called:
            return self.bench.call("m", value, timeout_us=timeout_us)
        self.sequences += self.kind.sequences
        sequence = self.sequences
        return self.bench.send(
            "m", value, timeout_us=timeout_us, sequence=sequence, flags=flags if sequence else ""
        )

    def occupy(self) -> Execution:
        """Let another request be executed, so that the next ones wait: for an instance, a slot or a resource."""
        self.before = self.bench.send("other", 0) if self.kind.limited else self.send(0, flags="S")
        self.holding = self.kind.sequences and not self.kind.limited
        return self.bench.execution()

    def begin(self, *, half: bool) -> Execution:
        """The execution of the request; `half`: after a part of it is done."""
        running = self.bench.execution()
        if half and self.kind.decoupled:
            running.send()
        if half and (self.kind.again or (self.kind.steps and not self.kind.decoupled)):
            running.end(again=self.kind.again)
            running = self.bench.execution()
        return running

    def finish(self, *, again: bool = False) -> None:
        """Let all that runs or waits come to its end; `again`: what may come again does so once more."""
        if self.holding:
            self.holding = False
            self.bench.send("m", 0, sequence=1, flags="E")
        self.bench.finish(again=int(again and self.kind.again))

    def counts(self, name: str = "m") -> tuple[int, dict[FailureReason, int]]:
        """How many requests to a model succeeded, and why others did not."""
        statistics = self.bench.models[name].statistics
        assert statistics.queue.count == statistics.success.count
        assert statistics.fail.count == sum(statistics.failures.values())
        return statistics.success.count, {reason: n for reason, n in statistics.failures.items() if n}


CASES = [
    (name, state, end)
    for name, kind in KINDS.items()
    for state in ("waiting", "executing", "half")
    for end in ("answer", "failure", "timeout", "cancel")
    if state != "half" or kind.decoupled or kind.again or kind.steps
    if (state, end) != ("waiting", "failure")
]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What only the garbage collector would free is there until the end of the test."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("workers", [False, True], ids=["in the server", "in workers"])
@pytest.mark.parametrize(("name", "state", "end"), CASES)
def test_nothing_is_left_of_a_request_and_the_next_one_is_served(
    name: str, state: str, end: str, *, workers: bool
) -> None:
    case = Case(KINDS[name], workers=workers)
    try:
        serve(case, state, end)
    finally:
        case.bench.close()


def serve(case: Case, state: str, end: str) -> None:
    """Send a request, which ends that way when it has come so far, and one after it."""
    kind, bench = case.kind, case.bench
    waits = state == "waiting"
    running = case.occupy() if waits else None
    sent = case.send(1, timeout_us=TIMEOUT_US if end == "timeout" and not kind.default else 0)
    if not waits:
        running = case.begin(half=state == "half")
    assert running is not None
    assert sent.array() is not None

    if end == "cancel":
        sent.cancel()
        assert waits or all(request.cancelled for request in running.batch.requests)
        assert waits or not bench.workers or running.told == running.batch.requests
    elif end == "timeout":
        bench.wait(2 * TIMEOUT_US)
    over_at_once = waits and (end == "cancel" or (end == "timeout" and kind.expires))
    assert sent.over == over_at_once
    if over_at_once:
        forget(bench, sent)
    running.end(InternalError("it raised") if end == "failure" else None)
    case.finish()
    del running

    assert sent.over
    assert outcome(sent) == expected(kind, state, end)
    check_counts(case, state, end)
    assert bench.left() == []
    forget(bench, sent)
    if case.before is not None:
        assert outcome(case.before) == (None, "")
        forget(bench, case.before)

    follower = case.send(2)
    case.finish()
    assert outcome(follower) == (None, "")
    assert bench.left() == []


def forget(bench: Bench, sent: Sent) -> None:
    """The client does not need its request any more: so nobody does."""
    sent.request = None
    bench.until(lambda: sent.array() is None)  # threads may take a moment


def outcome(sent: Sent) -> tuple[type[HalimedeError] | None, str]:
    """What the client was told in the end."""
    return (None, "") if sent.error is None else (type(sent.error), sent.error.message)


def expected(kind: Kind, state: str, end: str) -> tuple[type[HalimedeError] | None, str]:
    """What the client is told in the end."""
    prefix = "[request id: <id_unknown>] the request was cancelled"
    if end == "cancel" and kind.steps:
        return CancelledError, prefix
    if end == "cancel" and state == "waiting":
        return CancelledError, f"{prefix} while it was queued"
    if end == "timeout" and state == "waiting" and kind.expires:
        return UnavailableError, kind.expired
    if end == "failure":
        number = int(state == "half" and not kind.decoupled)
        where = f" (in step {number}, model 'm{number}')"
        return InternalError, f"in ensemble 'm', it raised{where}" if kind.steps else "it raised"
    return None, ""


def check_counts(case: Case, state: str, end: str) -> None:
    """The model's counts are Triton's."""
    kind = case.kind
    error, _ = expected(kind, state, end)
    others = 0 if case.before is None or kind.limited else 1 + kind.sequences
    reason = {
        "failure": FailureReason.BACKEND,
        "timeout": FailureReason.REJECTED,
        "cancel": FailureReason.CANCELED,
    }
    if kind.steps and error is not None and error is not CancelledError:
        assert case.counts() == (others, {FailureReason.OTHER: 1})
    else:
        assert case.counts() == (others + (error is None), {} if error is None else {reason[end]: 1})
    if kind.steps and state == "waiting":
        assert case.counts("m0") == (others + (error is None), {} if error is None else {reason[end]: 1})
    if kind.steps and end == "cancel" and state != "half":
        assert case.bench.models["m1"].statistics.execution_count == (0 if kind.decoupled else others)
