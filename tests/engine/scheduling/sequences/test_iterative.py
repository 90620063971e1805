"""Requests that their model asks to get again and again."""

import pytest

from halimede.core.errors import CancelledError, UnavailableError
from tests.engine.scheduling.sequences.bench import Bench, configuration

STRATEGIES = [
    "direct { } iterative_sequence: true",
    "oldest { max_candidate_sequences: 4 } iterative_sequence: true",
]


@pytest.fixture(params=STRATEGIES, ids=["direct", "oldest"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(configuration(request.param))


def test_a_request_runs_until_its_model_is_done_with_it(bench: Bench) -> None:
    name = bench.send(0)
    bench.finish(again=name)
    bench.finish(again=name)
    assert bench.answers == []
    bench.finish()
    assert bench.answers == [name]
    assert [inputs["START"] for inputs in bench.runner.inputs] == [[1], [0], [0]]
    assert [inputs["ID"] for inputs in bench.runner.inputs] == [[1], [1], [1]]
    assert bench.runner.ended == [(1, 1, "end")]
    assert bench.idle()


def test_new_requests_join_the_next_step_and_finished_ones_leave_at_once(bench: Bench) -> None:
    first, second = bench.send(0), bench.send(0)
    bench.finish(again=first)
    third = bench.send(0)
    assert sorted(bench.finish(again=f"{first} {second}")) == [first, second]
    assert sorted(bench.finish(again=f"{second} {third}")) == [first, second, third]
    assert sorted(name for name in bench.finish() if name != "-") == [second, third]
    assert bench.answers[0] == first
    assert bench.idle()


def test_more_requests_than_slots_wait_until_others_are_done() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 1 } iterative_sequence: true"))
    first, second = bench.send(0), bench.send(0)
    bench.finish(again=first)
    assert bench.runner.batches == [[first], [first]]
    bench.finish()
    assert bench.runner.batches[2] == [second]


def test_a_timeout_bounds_the_wait_for_a_slot_and_not_the_steps() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 1 } iterative_sequence: true"))
    first, second = bench.send(0, timeout_us=100), bench.send(0, timeout_us=100)
    bench.wait(200)
    assert bench.codes == {second: UnavailableError}
    bench.finish(again=first)
    bench.wait(200)
    bench.finish()
    assert bench.answers == [first]
    assert bench.idle()


def test_a_cancelled_request_does_not_come_again(bench: Bench) -> None:
    name, other = bench.send(0), bench.send(0)
    bench.finish(again=name)
    bench.cancel(name)
    bench.finish(again=f"{name} {other}")
    assert bench.codes == {name: CancelledError}
    assert [each for each in bench.finish() if each != "-"] == [other]
    assert bench.idle()


def test_its_number_and_flags_are_the_servers_whatever_the_client_says(bench: Bench) -> None:
    bench.send(77, "E")
    assert bench.runner.inputs[0]["ID"] == [1]
    assert bench.runner.inputs[0]["START"] == [1]
    assert bench.runner.inputs[0]["END"] == [0.0]


def test_silence_does_not_end_it(bench: Bench) -> None:
    name = bench.send(0)
    bench.wait(10_000)
    bench.finish(again=name)
    bench.wait(10_000)
    bench.finish()
    assert bench.answers == [name]


def test_it_is_lost_with_its_instance(bench: Bench) -> None:
    first, second = bench.send(0), bench.send(0)
    bench.finish(again=first)
    bench.crash()
    assert set(bench.errors) == {first, second}
    assert bench.idle()


def test_a_request_whose_client_is_slow_waits_until_it_has_caught_up(bench: Bench) -> None:
    slow, other = bench.send(0), bench.send(0)
    bench.finish(again=slow)
    bench.requests[slow].congest()
    bench.finish(again=f"{slow} {other}")
    assert [row for row in bench.finish(again=other) if row != "-"] == [other]
    bench.requests[slow].drain()
    bench.finish(again=other)
    assert sorted(row for row in bench.finish() if row != "-") == [slow, other]
    assert bench.idle()


def test_a_request_whose_client_is_slow_may_be_cancelled(bench: Bench) -> None:
    name = bench.send(0)
    bench.requests[name].congest()
    bench.finish(again=name)
    bench.cancel(name)
    assert bench.codes == {name: CancelledError}
    bench.requests[name].drain()
    assert bench.idle()
    assert not bench.runner.running


def test_a_request_whose_client_is_slow_is_lost_with_its_instance(bench: Bench) -> None:
    name = bench.send(0)
    bench.requests[name].congest()
    bench.finish(again=name)
    bench.crash()
    bench.revive()
    assert "is lost" in bench.errors[name]
    bench.requests[name].drain()
    assert bench.idle()
    after = bench.send(0)
    bench.finish()
    assert bench.answers == [after]


def test_a_request_that_is_lost_between_two_steps_is_told_to_be_sent_again(bench: Bench) -> None:
    name = bench.send(0)
    bench.requests[name].congest()
    bench.finish(again=name)
    bench.crash()
    assert bench.errors[name] == (
        "the request to model 'm' is lost: the instance that kept its state has ended. Send it again"
    )
    assert bench.codes[name] is UnavailableError
