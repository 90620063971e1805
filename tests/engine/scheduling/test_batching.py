import pytest

from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.clock import MICROSECOND, SECOND
from halimede.core.errors import CancelledError, UnavailableError
from halimede.engine.statistics import FailureReason
from tests.engine.scheduling.helpers import Bench, signature, spec


def dynamic(preferred: tuple[int, ...] = (), delay: int = 0, **fields: object) -> ModelDynamicBatching:
    return ModelDynamicBatching(
        preferred_batch_size=preferred,
        max_queue_delay_microseconds=delay,
        **fields,  # type: ignore[arg-type]  # the stub types each field on its own
    )


def test_default_scheduler_runs_each_request_alone_in_order() -> None:
    bench = Bench(instances=2)
    bench.send("abc")
    assert bench.batches == ["a", "b"]
    bench.finish()
    assert bench.batches == ["a", "b", "c"]


def test_requests_of_one_turn_share_a_batch() -> None:
    bench = Bench(dynamic())
    bench.send("abc")
    assert bench.batches == ["abc"]


def test_requests_that_queue_while_the_instance_is_busy_share_the_next_batch() -> None:
    bench = Bench(dynamic())
    bench.send("a")
    bench.send("b")
    bench.send("c", rows=2)
    assert bench.batches == ["a"]
    bench.finish()
    assert bench.batches == ["a", "bc"]


def test_a_batch_never_exceeds_the_largest_the_model_takes() -> None:
    bench = Bench(dynamic(), instances=3)
    bench.send("abc", rows=3)
    assert bench.batches == ["ab", "c"]


def test_a_preferred_size_is_sent_as_soon_as_it_is_reached() -> None:
    bench = Bench(dynamic((4, 8), delay=1000), instances=2)
    bench.send("abc")
    assert bench.batches == []
    bench.send("d")
    assert bench.batches == ["abcd"]


def test_a_preferred_size_is_sent_before_the_delay_is_over_however_late_it_is() -> None:
    bench = Bench(dynamic((2,), delay=100))
    bench.wait(1000)
    bench.send("abc")
    assert bench.batches == ["ab"]


def test_the_largest_preferred_size_that_is_complete_wins() -> None:
    bench = Bench(dynamic((2, 4)), instances=4)
    bench.send("abcdefg")
    assert bench.batches == ["abcd", "ef", "g"]


def test_a_prefix_is_cut_where_a_request_would_jump_over_the_largest_preferred_size() -> None:
    bench = Bench(dynamic((4,), delay=1000), instances=2)
    bench.send("a", rows=3)
    bench.send("b", rows=2)
    assert bench.batches == ["a"]


def test_a_single_large_request_runs_at_once_though_its_size_is_not_preferred() -> None:
    bench = Bench(dynamic((2,), delay=1000))
    bench.send("a", rows=6)
    assert bench.batches == ["a"]


def test_a_lone_request_waits_for_the_whole_delay() -> None:
    bench = Bench(dynamic(delay=100))
    bench.send("a")
    bench.wait(99)
    assert bench.batches == []
    bench.wait(1)
    assert bench.batches == ["a"]


def test_the_delay_counts_from_the_oldest_request() -> None:
    bench = Bench(dynamic(delay=100))
    bench.send("a")
    bench.wait(60)
    bench.send("b")
    bench.wait(40)
    assert bench.batches == ["ab"]


def test_after_the_delay_preferred_sizes_no_longer_hold() -> None:
    bench = Bench(dynamic((2,), delay=100))
    bench.send("a", rows=8)  # keeps the instance busy
    bench.send("bcd")
    bench.wait(100)
    bench.finish()
    assert bench.batches == ["a", "bcd"]


def test_without_delay_an_idle_instance_takes_a_lone_request_at_once() -> None:
    bench = Bench(dynamic((4,)))
    bench.send("a")
    assert bench.batches == ["a"]


def test_a_delay_that_ends_while_all_instances_are_busy_is_not_forgotten() -> None:
    bench = Bench(dynamic((4,), delay=100), instances=1)
    bench.send("a")
    bench.wait(100)
    bench.send("b")
    bench.wait(500)
    bench.finish()
    assert bench.batches == ["a", "b"]


def test_all_waiting_requests_cancelled_then_a_new_one_is_still_served() -> None:
    bench = Bench(dynamic((4,), delay=100))
    (request,) = bench.send("a")
    request.cancel()
    bench.wait(100)
    bench.send("b")
    bench.wait(100)
    assert bench.batches == ["b"]


def test_requests_of_different_variable_shapes_do_not_share_a_batch() -> None:
    bench = Bench(dynamic(delay=1000), signature(spec("IN", (-1,))), instances=3)
    bench.send("ab", shape=(3,))
    bench.send("c", shape=(5,))
    assert bench.batches == ["ab"]
    bench.wait(1000)
    assert bench.batches == ["ab", "c"]


def test_ragged_requests_share_a_batch_whatever_their_shapes() -> None:
    bench = Bench(dynamic(delay=1000), signature(spec("IN", (-1,), ragged=True)))
    bench.send("a", shape=(3,))
    bench.send("b", shape=(5,))
    bench.wait(1000)
    assert bench.batches == ["ab"]


def test_requests_with_different_optional_inputs_do_not_share_a_batch() -> None:
    model = signature(spec("IN"), spec("EXTRA", optional=True))
    bench = Bench(dynamic(delay=1000), model, instances=2)
    bench.send("a", inputs=("IN",))
    bench.send("b", inputs=("IN", "EXTRA"))
    assert bench.batches == ["a"]


def test_a_higher_priority_is_drained_first() -> None:
    bench = Bench(dynamic(priority_levels=2, default_priority_level=2))
    bench.send("x", rows=8)
    bench.send("a", rows=8)
    bench.send("b", rows=8, priority=1)
    bench.send("c", rows=8, priority=7)  # out of range: the default level
    for _ in range(4):
        bench.finish()
    assert bench.batches == ["x", "b", "a", "c"]


def test_a_full_queue_refuses_at_once() -> None:
    bench = Bench(dynamic(default_queue_policy=ModelQueuePolicy(max_queue_size=2)))
    bench.send("x", rows=8)
    bench.send("abc")
    error = bench.refused_requests["c"]
    assert isinstance(error, UnavailableError)
    assert error.message == "[request id: c] Exceeds maximum queue size"
    bench.finish()
    assert bench.batches == ["x", "ab"]


def test_a_full_queue_says_when_there_may_be_room() -> None:
    policy = ModelQueuePolicy(max_queue_size=2)
    bench = Bench(dynamic(default_queue_policy=policy), signature(spec("IN"), max_batch_size=1))

    def send(names: str) -> None:
        for name in names:
            bench.send(name, timeout_us=60 * SECOND // MICROSECOND)

    def finish() -> None:
        bench.wait(3 * SECOND // MICROSECOND)
        bench.finish()

    for name in "abcd":  # before that, it is not known how long executions take
        send(name)
        finish()
    send("efgH")
    finish()
    send("iJ")
    known = {name: getattr(error, "retry_after_s", None) for name, error in bench.refused_requests.items()}
    assert known == {"H": 3, "J": 9}, "at H it is not yet known how many rows a batch takes from the queue"


def test_an_instance_that_is_not_free_when_its_batch_ends_gets_no_other() -> None:
    bench = Bench()
    bench.send("abc")
    runner, batch = bench.running.pop()
    assert not runner.free
    bench.scheduler.finished(runner, batch)
    bench.clock.run()
    assert (bench.batches, bench.done) == (["a"], ["a"])
    runner.free = True
    bench.scheduler.changed(runner)
    assert bench.batches == ["a", "b"]


def test_each_priority_has_its_own_queue_size() -> None:
    policy = {1: ModelQueuePolicy(max_queue_size=1)}
    bench = Bench(dynamic(priority_levels=2, default_priority_level=2, priority_queue_policy=policy))
    bench.send("x", rows=8)
    bench.send("ab", priority=1)
    bench.send("cd", priority=2)
    assert list(bench.refused_requests) == ["b"]


def test_a_timed_out_request_is_refused_when_its_time_is_over_not_later() -> None:
    bench = Bench(dynamic(default_queue_policy=ModelQueuePolicy(default_timeout_microseconds=50)))
    bench.send("x", rows=8)
    bench.send("a")
    bench.wait(49)
    assert not bench.refused_requests
    bench.wait(1)
    error = bench.refused_requests["a"]
    assert isinstance(error, UnavailableError)
    assert error.message == "Request timeout expired"
    assert bench.reasons["a"] is FailureReason.REJECTED
    bench.finish()
    assert bench.batches == ["x"]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_requests_that_come_together_time_out_in_their_order_and_leave_no_rows(rows: int) -> None:
    model = signature(spec("IN"), max_batch_size=4 if rows else 0)
    bench = Bench(dynamic(), model)
    bench.send("a", rows=rows)
    bench.send("bcd", rows=rows, timeout_us=100)
    bench.send("e", rows=rows)
    assert bench.scheduler.queue.size == 4 * max(rows, 1)
    bench.wait(100)
    assert list(bench.refused_requests) == ["b", "c", "d"]
    assert bench.scheduler.queue.size == max(rows, 1)


def test_a_timeout_of_a_microsecond_expires_before_a_free_instance_takes_the_request() -> None:
    policy = ModelQueuePolicy(default_timeout_microseconds=1000, allow_timeout_override=True)
    bench = Bench(dynamic(default_queue_policy=policy))
    bench.clock.call_soon(bench.clock.stall, 5 * MICROSECOND)
    bench.send("a", timeout_us=1)
    assert bench.refused_requests["a"].message == "Request timeout expired"
    assert bench.batches == []
    bench.clock.call_soon(bench.clock.stall, 5 * MICROSECOND)
    bench.send("b", timeout_us=6)
    assert bench.batches == ["b"]
    bench.wait(2000)
    assert list(bench.refused_requests) == ["a"]


@pytest.mark.parametrize(
    ("allowed", "asked", "expires"), [(True, 20, 20), (True, 80, 50), (False, 20, 50), (True, 0, 50)]
)
def test_a_request_may_only_shorten_the_timeout_and_only_where_allowed(
    allowed: bool, asked: int, expires: int
) -> None:
    policy = ModelQueuePolicy(default_timeout_microseconds=50, allow_timeout_override=allowed)
    bench = Bench(dynamic(default_queue_policy=policy))
    bench.send("x", rows=8)
    bench.send("a", timeout_us=asked)
    bench.wait(expires - 1)
    assert not bench.refused_requests
    bench.wait(1)
    assert list(bench.refused_requests) == ["a"]


@pytest.mark.parametrize("config", [None, dynamic()], ids=["without batching", "without a policy"])
def test_request_waits_no_longer_than_its_own_timeout_where_the_model_sets_none(
    config: ModelDynamicBatching | None,
) -> None:
    bench = Bench(config)
    bench.send("x", rows=8)
    bench.send("a", timeout_us=50)
    bench.send("b")
    bench.wait(49)
    assert not bench.refused_requests
    bench.wait(1)
    assert bench.refused_requests["a"].message == "Request timeout expired"
    assert bench.reasons["a"] is FailureReason.REJECTED
    bench.finish()
    assert bench.batches == ["x", "b"]


@pytest.mark.parametrize("config", [None, dynamic()], ids=["without batching", "without a policy"])
def test_own_timeout_keeps_no_request_from_a_free_instance(config: ModelDynamicBatching | None) -> None:
    bench = Bench(config)
    bench.clock.call_soon(bench.clock.stall, 5 * MICROSECOND)
    bench.send("a", timeout_us=1)
    assert bench.batches == ["a"]
    bench.wait(1000)
    assert not bench.refused_requests


def test_a_delayed_request_runs_after_all_that_have_not_timed_out() -> None:
    policy = ModelQueuePolicy(default_timeout_microseconds=50, timeout_action=ModelQueuePolicy.DELAY)
    bench = Bench(dynamic(default_queue_policy=policy))
    bench.send("x", rows=8)
    bench.send("a", rows=8)
    bench.wait(50)
    bench.send("b", rows=8)
    bench.finish()
    bench.finish()
    assert bench.batches == ["x", "b", "a"]
    assert not bench.refused_requests


def test_a_cancelled_request_leaves_the_queue_and_the_rest_goes_on() -> None:
    bench = Bench(dynamic(default_queue_policy=ModelQueuePolicy(max_queue_size=3)))
    bench.send("x", rows=8)
    _, middle, _ = bench.send("abc")
    middle.cancel()
    assert isinstance(bench.refused_requests["b"], CancelledError)
    assert bench.reasons["b"] is FailureReason.CANCELED
    bench.send("d")  # its place is free
    bench.finish()
    assert bench.batches == ["x", "acd"]


def test_a_cancelled_delayed_request_never_runs() -> None:
    policy = ModelQueuePolicy(default_timeout_microseconds=50, timeout_action=ModelQueuePolicy.DELAY)
    bench = Bench(dynamic(default_queue_policy=policy))
    bench.send("x", rows=8)
    (request,) = bench.send("a")
    bench.wait(50)
    request.cancel()
    bench.finish()
    assert bench.batches == ["x"]
    assert list(bench.refused_requests) == ["a"]


def test_without_ordering_answers_come_as_batches_end() -> None:
    bench = Bench(dynamic(), instances=2)
    bench.send("a", rows=8)
    bench.send("b", rows=8)
    bench.finish(1)
    assert bench.done == ["b"]


def test_preserved_ordering_holds_answers_until_earlier_ones_are_sent() -> None:
    bench = Bench(dynamic(preserve_ordering=True), instances=3)
    for name in "abc":
        bench.send(name, rows=8)
    bench.finish(2)
    bench.finish(1)
    assert bench.done == []
    bench.finish()
    assert bench.done == ["a", "b", "c"]


def test_the_next_batch_begins_before_the_last_one_is_answered() -> None:
    bench = Bench(dynamic())
    bench.send("a", rows=8)
    bench.send("b", rows=8)
    runner, batch = bench.running.pop(0)
    running: list[list[str]] = []
    bench.completed = lambda batch: running.append(list(bench.batches))  # type: ignore[method-assign]  # a look at that moment
    runner.free = True
    bench.scheduler.finished(runner, batch)
    assert running == [["a", "b"]]


def test_only_a_full_batch_is_sent_ahead() -> None:
    bench = Bench(dynamic())
    bench.runners[0].ahead = True
    bench.send("a")
    bench.send("b", rows=3)
    assert bench.batches == ["a"]  # what may still grow waits
    bench.send("c", rows=5)
    assert bench.batches == ["a", "bc"]
    bench.send("d", rows=8)
    assert bench.batches == ["a", "bc"]  # one ahead is enough
    bench.finish()
    assert bench.batches == ["a", "bc", "d"]
    bench.send("e")
    bench.finish()
    assert bench.batches == ["a", "bc", "d"]
    bench.finish()
    assert bench.batches == ["a", "bc", "d", "e"]
    bench.finish()
    assert bench.done == ["a", "b", "c", "d", "e"]


def test_requests_of_a_model_that_does_not_batch_are_sent_ahead_one_at_a_time() -> None:
    bench = Bench()
    bench.runners[0].ahead = True
    bench.send("abc")
    assert bench.batches == ["a", "b"]
    bench.finish()
    assert bench.batches == ["a", "b", "c"]


def test_an_idle_instance_comes_before_one_that_would_have_a_batch_ahead() -> None:
    bench = Bench(instances=2)
    for runner in bench.runners:
        runner.ahead = True
    bench.send("abc")
    assert [runner for runner, _ in bench.running[:2]] == bench.runners
    bench.finish(1)  # the second one has nothing to do now
    bench.send("d")
    assert bench.running[-1][0] is bench.runners[1]
