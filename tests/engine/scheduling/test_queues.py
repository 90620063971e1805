from hypothesis import given
from hypothesis import strategies as st

from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.requests import InferRequest
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
