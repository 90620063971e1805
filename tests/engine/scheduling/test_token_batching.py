"""Batches that are closed by tokens."""

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.backends.batch import Batch, Closing
from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.config.signature import Signature
from halimede.config.token_batching import TokenBatching
from halimede.core.requests import InferRequest
from halimede.engine.scheduling.token_batching import CANDIDATES
from tests.engine.scheduling.helpers import Bench, spec
from tests.engine.scheduling.test_batching import dynamic


def model(
    max_tokens: int,
    max_padding: float = 1.0,
    max_rows: int = 64,
    *,
    ragged: bool = False,
    alone: bool = False,
) -> Signature:
    """A model of IN, of any number of tokens."""
    fill = {} if ragged or alone else {"IN": 0}
    tokens = TokenBatching(max_tokens, max_padding, "IN", padded=not ragged, fill=fill)
    inputs = {"IN": spec("IN", (-1,), ragged=ragged)}
    return Signature(max_rows, inputs, {"OUT": spec("OUT")}, decoupled=False, tokens=tokens)


def send(bench: Bench, lengths: dict[str, int], **options: int) -> list[InferRequest]:
    """A request a letter, all in one turn unless the instances are free."""
    return [bench.send(name, shape=(length,), **options)[0] for name, length in lengths.items()]  # type: ignore[arg-type]


def test_batch_is_closed_by_tokens_with_their_padding() -> None:
    bench = Bench(dynamic(), model(100))
    send(bench, {"x": 1, "a": 30, "b": 30, "c": 35, "d": 30})
    bench.finish()
    assert bench.batches == ["x", "abd"]  # with c it would be 4 x 35
    assert bench.running[0][1].closing is Closing.MAX_TOKENS


def test_requests_nearest_to_the_length_of_the_first_join_it() -> None:
    bench = Bench(dynamic(), model(80))
    send(bench, {"x": 1, "a": 3, "b": 40, "c": 4, "d": 38})
    for _ in range(2):
        bench.finish()
    assert bench.batches == ["x", "ac", "bd"]
    assert [(batch.tokens, batch.padding) for _, batch in bench.running] == [(78, 2)]


def test_those_that_wait_longest_are_considered_beyond_the_largest_batch() -> None:
    bench = Bench(dynamic(), model(1000, max_padding=0.2, max_rows=64))
    lengths = [3, *[40] * (CANDIDATES - 1), *[3] * 62, 40, 40, 3]
    names = [chr(0x4E00 + index) for index in range(len(lengths))]
    send(bench, {"x": 1, **dict(zip(names, lengths, strict=True))})
    bench.finish()
    alike = [name for name, length in zip(names, lengths, strict=True) if length == 3]
    assert bench.batches == ["x", "".join(alike[:-1])], "the last one is behind all that are considered"


def test_padding_beyond_the_allowed_share_is_left_for_another_batch() -> None:
    bench = Bench(dynamic(), model(1000, max_padding=0.2))
    send(bench, {"x": 1, "a": 100, "b": 70, "c": 50, "d": 20})
    for _ in range(3):
        bench.finish()
    assert bench.batches == ["x", "ab", "c", "d"]


def test_requests_whose_other_inputs_differ_in_shape_do_not_share_a_batch() -> None:
    of_tokens = model(100)
    inputs = {**of_tokens.inputs, "OTHER": spec("OTHER", (-1,))}
    bench = Bench(dynamic(), replace(of_tokens, inputs=inputs))
    for name, length in {"x": 1, "a": 3, "b": 4, "c": 3, "d": 4}.items():
        bench.send(name, shape=(length,), inputs=("IN", "OTHER"))
    for _ in range(2):
        bench.finish()
    assert bench.batches == ["x", "ac", "bd"]


def test_request_above_the_limit_runs_alone() -> None:
    bench = Bench(dynamic(), model(10))
    send(bench, {"x": 1, "a": 50, "b": 5})
    bench.finish()
    bench.finish()
    assert bench.batches == ["x", "a", "b"]


def test_ragged_inputs_have_no_padding_and_keep_their_order() -> None:
    bench = Bench(dynamic(), model(10, ragged=True))
    send(bench, {"x": 1, "a": 8, "b": 2, "c": 9})
    bench.finish()
    assert bench.batches == ["x", "ab"]
    assert [(batch.tokens, batch.padding) for _, batch in bench.running] == [(10, 0)]


def test_order_is_kept_if_the_configuration_says_so() -> None:
    bench = Bench(dynamic(preserve_ordering=True), model(80))
    send(bench, {"x": 1, "a": 3, "b": 40, "c": 4, "d": 38})
    for _ in range(3):
        bench.finish()
    assert bench.done == ["x", "a", "b", "c", "d"]
    assert bench.batches == ["x", "ab", "cd"]


def test_lower_priority_joins_only_if_all_of_higher_priority_are_in_the_batch() -> None:
    config = dynamic(priority_levels=2, default_priority_level=2)
    bench = Bench(config, model(100))
    send(bench, {"x": 1})
    send(bench, {"a": 50}, priority=2)
    send(bench, {"b": 50, "c": 60}, priority=1)
    bench.finish()
    bench.finish()
    assert bench.batches == ["x", "b", "c"]  # a would fit beside b, but c is more urgent
    bench.finish()
    send(bench, {"d": 50}, priority=2)
    send(bench, {"e": 50}, priority=1)
    bench.finish()
    assert bench.batches[3:] == ["a", "ed"]


def test_delay_is_waited_for_unless_the_limit_is_reached() -> None:
    bench = Bench(dynamic(delay=100), model(20))
    send(bench, {"a": 5})
    bench.wait(99)
    assert bench.batches == []
    bench.wait(1)
    assert [bench.batches, bench.running[0][1].closing] == [["a"], Closing.DELAY_OVER]
    bench.finish()
    send(bench, {"b": 10, "c": 10})
    assert [bench.batches, bench.running[0][1].closing] == [["a", "bc"], Closing.MAX_TOKENS]


def test_busy_instance_takes_a_batch_ahead_only_if_its_tokens_are_full() -> None:
    bench = Bench(dynamic(), model(20))
    bench.runners[0].ahead = True
    send(bench, {"a": 5, "b": 5})
    assert bench.batches == ["a"]
    send(bench, {"c": 7, "d": 7})
    assert bench.batches == ["a", "bc"]


def test_batch_that_is_returned_waits_again_in_front() -> None:
    bench = Bench(dynamic(), model(80))
    send(bench, {"x": 1, "a": 3, "b": 40, "c": 4, "d": 38})
    bench.finish()
    runner, batch = bench.running.pop()
    runner.free = True
    bench.scheduler.returned(batch)
    assert bench.scheduler.queue.size == len(bench.scheduler.queue) == 4
    bench.scheduler.changed(runner)
    bench.finish()
    assert bench.batches == ["x", "ac", "ac", "bd"]


@pytest.mark.parametrize("ragged", [False, True])
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=50),
    rows=st.integers(1, 3),
    levels=st.sampled_from([1, 3]),
    max_padding=st.sampled_from([0.0, 0.2, 1.0]),
    ordered=st.booleans(),
    steps=st.lists(st.booleans(), max_size=50),
)
def test_no_batch_exceeds_the_limits_and_each_request_runs_once(
    ragged: bool,
    lengths: Sequence[int],
    rows: int,
    levels: int,
    max_padding: float,
    ordered: bool,
    steps: Sequence[bool],
) -> None:
    ordered = ordered and levels == 1
    config = ModelDynamicBatching(
        priority_levels=levels if levels > 1 else 0,
        default_priority_level=1 if levels > 1 else 0,
        preserve_ordering=ordered,
    )
    limits = model(100, max_padding, max_rows=6, ragged=ragged)
    bench = _Recorded(config, limits)
    for number, length in enumerate(lengths):
        priority = number % levels + 1 if levels > 1 else 0
        bench.send(ascii_letters[number], rows, shape=(length,), priority=priority)
        if number < len(steps) and steps[number] and bench.running:
            bench.finish()
    while bench.running:
        bench.finish()
    assert sorted(bench.done) == sorted(ascii_letters[: len(lengths)])
    if ordered:
        assert bench.done == list(ascii_letters[: len(lengths)])


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_request_that_waits_longest_is_always_in_the_next_batch(lengths: Sequence[int]) -> None:
    bench = _Recorded(dynamic(), model(100))
    bench.send("X", shape=(1,))
    for name, length in zip(ascii_letters, lengths, strict=False):
        bench.send(name, shape=(length,))
    while bench.running:
        oldest = next(iter(bench.scheduler.queue), None)
        bench.finish()
        assert oldest is None or oldest in bench.running[0][1].requests


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    timeout=st.integers(1, 100),
    defer=st.booleans(),
)
def test_timeouts_hold(lengths: Sequence[int], timeout: int, defer: bool) -> None:
    policy = ModelQueuePolicy(
        default_timeout_microseconds=timeout,
        timeout_action=ModelQueuePolicy.DELAY if defer else ModelQueuePolicy.REJECT,
    )
    bench = _Recorded(ModelDynamicBatching(default_queue_policy=policy), model(100))
    bench.send("X", shape=(1,))
    for name, length in zip(ascii_letters, lengths, strict=False):
        bench.send(name, shape=(length,))
    bench.wait(timeout)
    while bench.running:
        bench.finish()
    names = set(ascii_letters[: len(lengths)])
    assert set(bench.refused_requests) == (set() if defer else names)
    assert set(bench.done) == {"X"} | (names if defer else set())


class _Recorded(Bench):
    """Looks at each batch when it ends."""

    def completed(self, batch: Batch) -> None:
        super().completed(batch)
        lengths = [request.inputs["IN"].shape[1] for request in batch.requests]
        rows = [request.batch_size for request in batch.requests]
        tokens = self.model.tokens
        assert tokens is not None
        real = sum(size * length for size, length in zip(rows, lengths, strict=True))
        total = sum(rows) * max(lengths) if tokens.padded else real
        assert (batch.tokens, batch.padding) == (real, total - real)
        if len(batch.requests) > 1:
            assert total <= tokens.max_tokens
            assert total - real <= tokens.max_padding * total
            assert sum(rows) <= self.model.max_batch_size
