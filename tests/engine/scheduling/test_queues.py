import weakref

from hypothesis import given
from hypothesis import strategies as st

from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.clock import MICROSECOND, VirtualClock
from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.scheduling.queues import RequestQueue
from tests.engine.scheduling.helpers import Bench

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 8), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 120), st.just(0)),
        st.tuples(st.just("finish"), st.integers(0, 3), st.just(0)),
    ),
    max_size=60,
)


@given(
    actions=ACTIONS,
    delay=st.sampled_from([0, 40]),
    preferred=st.sampled_from([(), (2, 4), (8,)]),
    levels=st.sampled_from([0, 3]),
    timeout=st.sampled_from([0, 60]),
    defer=st.booleans(),
    size=st.sampled_from([0, 3]),
    ordered=st.booleans(),
)
def test_every_request_is_answered_exactly_once_whatever_happens(
    actions: list[tuple[str, int, int]],
    delay: int,
    preferred: tuple[int, ...],
    levels: int,
    timeout: int,
    defer: bool,
    size: int,
    ordered: bool,
) -> None:
    policy = ModelQueuePolicy(
        default_timeout_microseconds=timeout,
        timeout_action=ModelQueuePolicy.DELAY if defer else ModelQueuePolicy.REJECT,
        max_queue_size=size,
    )
    config = ModelDynamicBatching(
        preferred_batch_size=preferred,
        max_queue_delay_microseconds=delay,
        priority_levels=levels,
        default_priority_level=1 if levels else 0,
        default_queue_policy=policy,
        preserve_ordering=ordered,
    )
    bench = Bench(config, instances=2)
    sent: list[InferRequest] = []
    for action, number, priority in actions:
        if action == "send":
            sent += bench.send(chr(256 + len(sent)), rows=number, priority=priority)
        elif action == "cancel" and number < len(sent):
            sent[number].cancel()
        elif action == "wait":
            bench.wait(number)
        elif action == "finish" and number < len(bench.running):
            bench.finish(number)
    for _ in range(len(sent) + 1):
        bench.wait(1000)
        while bench.running:
            bench.finish()
    assert sorted([*bench.done, *bench.refused_requests]) == sorted(request.id for request in sent)
    assert sorted(bench.done) == sorted("".join(bench.batches))
    assert len(bench.scheduler.queue) == 0
    assert bench.scheduler.queue.size == 0
    if ordered:
        assert "".join(bench.done) == "".join(bench.batches)


def test_any_number_of_priority_levels_costs_only_those_that_are_used() -> None:
    levels = 2**64 - 1
    bench = Bench(ModelDynamicBatching(priority_levels=levels, default_priority_level=levels))
    bench.send("a", rows=8)
    for name, priority in (("b", 0), ("c", levels - 1), ("d", 7), ("e", 9)):
        bench.send(name, rows=8, priority=priority)
    while bench.running:
        bench.finish()
    assert bench.batches == ["a", "d", "e", "c", "b"]


class Listed:
    """What a queue should do, on a list of all that wait."""

    def __init__(self, config: ModelDynamicBatching) -> None:
        self.config = config
        self.now = 0
        self.waiting: list[InferRequest] = []
        self.deadlines: dict[InferRequest, int] = {}
        self.delayed: list[InferRequest] = []
        self.timed_out: list[str] = []

    def level(self, request: InferRequest) -> int:
        levels = self.config.priority_levels
        return request.priority if 1 <= request.priority <= levels else self.config.default_priority_level

    def policy(self, request: InferRequest) -> ModelQueuePolicy:
        level = self.level(request)
        policies = self.config.priority_queue_policy
        return policies.get(level, self.config.default_queue_policy)

    def push(self, request: InferRequest) -> bool:
        policy = self.policy(request)
        alike = [each for each in self.waiting + self.delayed if self.level(each) == self.level(request)]
        if policy.max_queue_size and len(alike) >= policy.max_queue_size:
            return False
        timeout = policy.default_timeout_microseconds
        if not timeout or (policy.allow_timeout_override and 0 < request.timeout_us < timeout):
            timeout = request.timeout_us
        if timeout:
            self.deadlines[request] = self.now + timeout
        self.waiting.append(request)
        return True

    def order(self) -> list[InferRequest]:
        every = [(self.level(each), 0, each) for each in self.waiting]
        every += [(self.level(each), 1, each) for each in self.delayed]
        return [each for _, _, each in sorted(every, key=lambda entry: entry[:2])]

    def remove(self, request: InferRequest) -> None:
        (self.waiting if request in self.waiting else self.delayed).remove(request)
        self.deadlines.pop(request, None)

    def restore(self, request: InferRequest) -> None:
        self.waiting.insert(0, request)

    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        for request, when in sorted(self.deadlines.items(), key=lambda entry: entry[1]):
            if when <= self.now:
                self.remove(request)
                if self.policy(request).timeout_action == ModelQueuePolicy.DELAY:
                    self.delayed.append(request)
                else:
                    self.timed_out.append(request.id)


POLICIES = st.builds(
    ModelQueuePolicy,
    default_timeout_microseconds=st.sampled_from([0, 30, 80]),
    timeout_action=st.sampled_from([ModelQueuePolicy.REJECT, ModelQueuePolicy.DELAY]),
    allow_timeout_override=st.booleans(),
    max_queue_size=st.sampled_from([0, 3]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), st.sampled_from([0, 20, 50, 200]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["pop", "restore"]), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 20), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 60), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@given(
    steps=STEPS,
    levels=st.sampled_from([0, 3]),
    policy=POLICIES,
    policies=st.dictionaries(st.integers(1, 3), POLICIES, max_size=2),
)
def test_queue_does_what_a_list_would_do(
    steps: list[tuple[str, int, int, int]],
    levels: int,
    policy: ModelQueuePolicy,
    policies: dict[int, ModelQueuePolicy],
) -> None:
    config = ModelDynamicBatching(
        priority_levels=levels,
        default_priority_level=2 if levels else 0,
        default_queue_policy=policy,
        priority_queue_policy=policies if levels else {},
    )
    listed, timed_out, taken = Listed(config), list[str](), list[InferRequest]()
    clock = VirtualClock()
    queue = RequestQueue(config, clock, lambda request: timed_out.append(request.id))
    for number, (step, first, second, third) in enumerate(steps):
        if step == "push":
            request = InferRequest("m", {}, _ignore, id=str(number), priority=first, timeout_us=second)
            request.batch_size = third
            try:
                queue.push(request, busy=True)
            except UnavailableError:
                assert not listed.push(request)
            else:
                assert listed.push(request)
        elif step == "pop" and len(queue):
            request = queue.pop()
            assert request is listed.order()[0]
            listed.remove(request)
            taken.append(request)
        elif step == "restore" and taken:
            listed.restore(taken[-1])
            queue.restore(taken.pop())
        elif step == "remove" and len(queue):
            request = listed.order()[first % len(listed.order())]
            listed.remove(request)
            queue.remove(request)
        elif step == "wait":
            for _ in range(first):
                clock.advance(MICROSECOND)
                listed.advance(1)
        assert list(queue) == listed.order()
        assert len(queue) == len(listed.order())
        assert queue.size == sum(each.batch_size or 1 for each in listed.order())
        assert sorted(timed_out) == sorted(listed.timed_out)


def test_requests_that_are_gone_are_let_go_while_the_first_one_waits() -> None:
    queue = RequestQueue(ModelDynamicBatching(), VirtualClock(), _nobody)
    queue.push(InferRequest("m", {}, _ignore))
    gone = []
    for _ in range(1000):
        request = InferRequest("m", {}, _Client(), timeout_us=60_000_000)
        gone.append(weakref.ref(request.respond))
        queue.push(request)
        queue.remove(request)
    del request
    assert sum(each() is not None for each in gone) < 100


def test_requests_that_were_served_are_let_go_before_their_deadlines() -> None:
    queue = RequestQueue(ModelDynamicBatching(), VirtualClock(), _nobody)
    served = []
    for _ in range(1000):
        request = InferRequest("m", {}, _Client(), timeout_us=60_000_000)
        served.append(weakref.ref(request.respond))
        queue.push(request)
        queue.pop()
    del request
    assert not any(each() for each in served)


class _Client:
    """Where responses go; it lives as long as the request that has it."""

    def __call__(self, response: InferResponse | None, final: bool) -> None:
        """Take a response."""


def _ignore(response: InferResponse | None, final: bool) -> None:
    """Nobody answers."""


def _nobody(request: InferRequest) -> None:
    """None times out."""
    raise AssertionError
