"""Sequences from START to END, and what may befall them, whatever the strategy."""

import gc
import logging
import weakref

import pytest

from halimede.core.errors import CancelledError, InternalError, InvalidArgumentError, UnavailableError
from halimede.engine.statistics import FailureReason
from tests.engine.scheduling.sequences.bench import Bench, configuration

STRATEGIES = ["direct { }", "oldest { max_candidate_sequences: 4 }"]
ONE = ["direct { }", "oldest { max_candidate_sequences: 1 }"]


@pytest.fixture(params=STRATEGIES, ids=["direct", "oldest"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(configuration(request.param))


@pytest.fixture(params=ONE, ids=["direct", "oldest"])
def single(request: pytest.FixtureRequest) -> Bench:
    """One slot."""
    return Bench(configuration(request.param, rows=1))


# What a request must say


def test_a_request_of_several_rows_is_refused(bench: Bench) -> None:
    name = bench.send(1, "S", rows=2)
    text = "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
    assert bench.errors == {name: text}
    assert bench.codes[name] is InvalidArgumentError


@pytest.mark.parametrize("correlation_id", [0, ""])
def test_a_request_without_a_correlation_id_is_refused(bench: Bench, correlation_id: int | str) -> None:
    name = bench.send(correlation_id, "S")
    text = "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    assert bench.errors == {name: text}
    assert bench.codes[name] is InvalidArgumentError


@pytest.mark.parametrize("flags", ["", "E"])
def test_the_first_request_needs_the_start_flag(bench: Bench, flags: str) -> None:
    name = bench.send(5, flags)
    text = (
        "inference request for sequence 5 to model 'm' must specify the START flag on the first request of "
        "the sequence"
    )
    assert bench.errors == {name: text}
    assert bench.codes[name] is InvalidArgumentError
    assert bench.idle()


def test_after_its_end_a_sequence_needs_a_start_again(bench: Bench) -> None:
    bench.send(5, "S")
    bench.send(5, "E")
    assert "must specify the START flag" in bench.errors[bench.send(5)]


def test_a_text_is_no_id_for_a_control_that_takes_numbers(bench: Bench) -> None:
    name = bench.send("five", "S")
    assert bench.errors[name] == (
        "correlation ID 'five' is a string, but control input 'ID' takes UINT64; use a number, or set its data_type "
        "to TYPE_STRING"
    )
    assert bench.idle()


def test_requests_of_a_sequence_run_one_after_the_other(bench: Bench) -> None:
    for flags in ("S", "", "", "E"):
        bench.send(1, flags, settle=False)
    bench.clock.run()
    for _ in range(4):
        bench.finish()
    assert bench.runner.batches == [["1.1"], ["1.2"], ["1.3"], ["1.4"]]
    assert bench.runner.ended == [(1, 1, "end")]
    assert bench.idle()
    assert bench.over == 1


def test_a_failed_request_does_not_end_its_sequence(bench: Bench) -> None:
    bench.send(1, "S")
    bench.finish(failed=True)
    assert bench.codes == {"1.1": InternalError}
    bench.send(1)
    bench.finish()
    assert bench.answers == ["1.2"]


# Starts and ends


def test_a_second_start_begins_anew_in_the_same_slot(single: Bench, caplog: pytest.LogCaptureFixture) -> None:
    single.send(1, "S")
    single.send(2, "S")
    with caplog.at_level(logging.WARNING):
        single.send(1, "S")
    assert "sequence 1 for model 'm' has a conflict" in caplog.text
    single.finish()
    assert single.runner.ended == [(1, 1, "restart")]
    single.finish()
    assert single.runner.batches == [["1.1"], ["1.2"]]
    single.send(1, "E")
    single.finish()
    assert single.runner.ended[1:] == [(2, 1, "end")]
    assert single.runner.batches[-1] == ["2.1"]


def test_after_an_end_that_waits_a_start_is_another_sequence(single: Bench) -> None:
    single.send(1, "S")
    single.send(1, "E")
    single.send(2, "SE")
    single.send(1, "SE")
    for _ in range(4):
        single.finish()
    assert single.runner.batches == [["1.1"], ["1.2"], ["2.1"], ["1.3"]]
    assert single.runner.ended == [(1, 1, "end"), (2, 2, "end"), (3, 1, "end")]


def test_a_sequence_in_the_backlog_waits_with_all_its_requests(single: Bench) -> None:
    single.send(1, "S")
    single.send(2, "S")
    single.send(3, "SE")
    single.send(2)
    single.send(2, "E")
    single.finish()
    single.send(1, "E")
    for _ in range(5):
        single.finish()
    assert single.runner.batches == [["1.1"], ["1.2"], ["2.1"], ["2.2"], ["2.3"], ["3.1"]]
    assert single.idle()


# Silence


def test_a_silent_sequence_loses_its_slot(single: Bench) -> None:
    single.send(1, "S")
    single.finish()
    single.send(2, "S")
    single.wait(999)
    assert single.runner.batches == [["1.1"]]
    single.wait(1)
    assert single.runner.batches == [["1.1"], ["2.1"]]
    assert single.runner.ended == [(1, 1, "idle")]
    assert "must specify the START flag" in single.errors[single.send(1)]


def test_each_request_ends_the_silence(bench: Bench) -> None:
    bench.send(1, "S")
    for _ in range(5):
        bench.finish()
        bench.wait(900)
        bench.send(1)
    assert bench.errors == {}


def test_waiting_for_a_slot_is_no_silence(single: Bench) -> None:
    single.send(1, "S")
    single.send(2, "S")
    single.finish()
    for _ in range(5):
        single.wait(900)
        single.send(1)
        single.finish()
    single.send(1, "E")
    single.finish()
    single.wait(900)
    assert "2.1" in single.runner.batches[-1]
    single.finish()
    single.send(2)
    single.finish()
    assert single.answers[-2:] == ["2.1", "2.2"]


def test_requests_that_wait_when_their_sequence_was_silent_for_too_long_run(bench: Bench) -> None:
    bench.send(1, "S")
    bench.send(1)
    bench.wait(1000)
    bench.finish()
    bench.finish()
    assert bench.answers == ["1.1", "1.2"]
    assert bench.runner.ended == [(1, 1, "idle")]
    assert bench.idle()


def test_ten_thousand_silent_sequences_are_reaped_together() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 10000 }", rows=64), at_once=True)
    for name in range(1, 10_001):
        bench.send(name, "S", settle=False)
    bench.clock.run()
    assert bench.batcher.open == 10_000
    bench.wait(1000)
    assert bench.idle()
    assert len(bench.runner.ended) == 10_000


def test_many_different_ids_leave_nothing() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 8 }", rows=8), at_once=True)
    for name in range(1, 5_001):
        bench.send(name, "SE")
        bench.requests.clear()
        bench.numbers.clear()
    assert len(bench.answers) == 5_000
    assert bench.idle()
    assert not bench.batcher._backlog  # noqa: SLF001 - what is left is seen only inside
    free = [bench.batcher._free.next() for _ in range(9)]  # noqa: SLF001 - what is left is seen only inside
    assert sorted(slot.index for slot in free if slot is not None) == list(range(8))


# Cancellation and time-outs


def test_cancelling_one_that_waits_cancels_the_sequence(bench: Bench) -> None:
    bench.send(1, "S")
    bench.send(1)
    bench.send(1)
    bench.cancel("1.2")
    assert set(bench.errors) == {"1.2", "1.3"}
    assert set(bench.codes.values()) == {CancelledError}
    assert set(bench.reasons.values()) == {FailureReason.CANCELED}
    bench.finish()
    assert bench.answers == ["1.1"]
    assert bench.runner.ended == [(1, 1, "cancelled")]
    assert "must specify the START flag" in bench.errors[bench.send(1)]
    assert bench.idle()


def test_a_cancelled_sequence_leaves_its_slot_to_the_next(single: Bench) -> None:
    single.send(1, "S")
    single.send(1)
    single.send(2, "SE")
    single.cancel("1.2")
    single.finish()
    assert single.runner.batches == [["1.1"], ["2.1"]]


def test_a_cancelled_sequence_in_the_backlog_is_passed_over(single: Bench) -> None:
    single.send(1, "S")
    single.send(2, "S")
    single.send(2)
    single.send(3, "SE")
    single.cancel("2.1")
    assert set(single.errors) == {"2.1", "2.2"}
    single.send(1, "E")
    for _ in range(3):
        single.finish()
    assert single.runner.batches == [["1.1"], ["1.2"], ["3.1"]]
    assert single.idle()


def test_a_request_that_runs_may_be_cancelled_without_harm_to_its_sequence(bench: Bench) -> None:
    bench.send(1, "S")
    bench.cancel("1.1")
    bench.finish()
    bench.send(1)
    bench.finish()
    assert bench.answers == ["1.1", "1.2"]


def test_a_sequence_that_waits_too_long_for_a_slot_expires(single: Bench) -> None:
    single.send(1, "S")
    single.send(2, "S", timeout_us=500)
    single.send(2, timeout_us=300)
    single.send(2)
    single.wait(299)
    assert single.errors == {}
    single.wait(1)
    assert set(single.errors) == {"2.1", "2.2", "2.3"}
    assert set(single.errors.values()) == {"timeout of the corresponding sequence has been expired"}
    assert set(single.codes.values()) == {UnavailableError}
    assert set(single.reasons.values()) == {FailureReason.REJECTED}
    assert "must specify the START flag" in single.errors[single.send(2)]


def test_a_sequence_with_a_slot_does_not_expire(single: Bench) -> None:
    single.send(1, "SE")
    single.send(2, "S", timeout_us=300)  # it has the slot of the one that runs
    single.send(3, "S", timeout_us=300)
    single.wait(300)
    assert set(single.errors) == {"3.1"}
    single.finish()
    single.finish()
    assert single.answers == ["1.1", "2.1"]


# Instances that end


def test_sequences_are_lost_with_their_instance(bench: Bench) -> None:
    bench.send(1, "S")
    bench.finish()
    bench.send(1)
    bench.send(1)
    bench.crash()
    assert bench.errors["1.2"] == "the process ended"
    assert bench.errors["1.3"] == (
        "sequence 1 of model 'm' is lost: the instance that kept its state has ended. Begin it again with a request "
        "that has the START flag"
    )
    bench.revive()
    assert bench.errors[bench.send(1)] == bench.errors["1.3"]
    assert bench.codes["1.4"] is UnavailableError
    bench.send(1, "S")
    bench.finish()
    assert bench.answers == ["1.1", "1.5"]
    assert bench.runner.ended == []


def test_a_sequence_that_had_not_begun_is_not_lost(bench: Bench) -> None:
    bench.send(1, "S")
    bench.crash(begun=0)
    bench.send(1)
    bench.revive()
    bench.finish()
    bench.finish()
    assert bench.answers == ["1.1", "1.2"]
    assert bench.errors == {}


def test_what_begins_anew_behind_a_lost_sequence_runs(bench: Bench) -> None:
    bench.send(1, "S")
    bench.send(1)
    bench.send(1, "S")
    bench.crash()
    assert set(bench.errors) == {"1.1", "1.2"}
    bench.revive()
    bench.finish()
    bench.send(1, "E")
    bench.finish()
    assert bench.answers == ["1.3", "1.4"]
    assert bench.idle()


def test_the_successor_in_the_slot_of_a_lost_sequence_runs(single: Bench) -> None:
    single.send(1, "S")
    single.finish()
    single.send(1, "E")
    single.send(2, "S")
    single.crash(begun=0)
    assert set(single.errors) == {"1.2"}
    single.revive()
    single.finish()
    assert single.answers == ["1.1", "2.1"]


def test_a_sequence_that_begins_anew_runs_though_its_last_request_had_not_begun(single: Bench) -> None:
    single.send(1, "S")
    single.finish()
    single.send(1)
    single.send(1, "S")
    single.crash(begun=0)
    assert set(single.errors) == {"1.2"}
    single.revive()
    single.finish()
    assert single.answers == ["1.1", "1.3"]


def test_new_sequences_begin_on_instances_that_are_there() -> None:
    bench = Bench(configuration(rows=2), instances=2)
    bench.send(1, "S")
    bench.crash(0)
    for name in (2, 3, 4):
        bench.send(name, "S")
    assert not bench.runners[0].running
    bench.finish(1)
    assert sum(len(batch) for batch in bench.runners[1].batches) >= 2
    bench.revive(0)
    assert [batch for batch in bench.runners[0].batches if "4.1" in batch]


def test_that_a_sequence_is_lost_is_forgotten_in_time(bench: Bench) -> None:
    bench.send(1, "S")
    bench.crash()
    bench.wait(1000)
    assert "must specify the START flag" in bench.errors[bench.send(1)]
    assert not bench.batcher._lost  # noqa: SLF001 - what is left is seen only inside


# The end


def test_while_it_stops_sequences_go_on_but_none_begins(bench: Bench) -> None:
    bench.send(1, "S")
    bench.batcher.stop()
    name = bench.send(2, "S")
    assert bench.errors == {
        name: "Server is stopping, scheduler for model has stopped accepting new inference requests"
    }
    bench.finish()
    assert bench.over == 0
    bench.send(1, "E")
    bench.finish()
    assert bench.answers == ["1.1", "1.2"]
    assert bench.over == 1


def test_at_an_unload_requests_that_wait_run(single: Bench) -> None:
    single.send(1, "S")
    single.send(1)
    single.send(2, "S")
    single.batcher.end_sequences()
    late = single.send(3, "S")
    assert "has stopped accepting new inference requests" in single.errors[late]
    for _ in range(3):
        single.finish()
    assert single.answers == ["1.1", "1.2", "2.1"]
    assert [(name, reason) for _, name, reason in single.runner.ended] == [(1, "unload"), (2, "unload")]
    assert single.idle()
    assert single.over == 1


def test_at_an_unload_idle_sequences_end_at_once(bench: Bench) -> None:
    bench.send(1, "S")
    bench.finish()
    assert bench.runner.ended == []
    bench.batcher.end_sequences()
    bench.clock.run()
    assert bench.runner.ended == [(1, 1, "unload")]
    assert bench.idle()
    assert bench.over == 1


def test_all_that_waits_can_be_refused(single: Bench) -> None:
    single.send(1, "S")
    single.send(1)
    single.send(2, "S")
    single.batcher.refuse_all(UnavailableError("no instance"))
    assert {name: single.errors[name] for name in ("1.2", "2.1")} == {
        "1.2": "no instance",
        "2.1": "no instance",
    }
    single.finish()
    assert single.answers == ["1.1"]
    assert single.idle()


def test_requests_are_not_held_up_while_very_many_idle_sequences_end() -> None:
    many = 2500
    bench = Bench(configuration(f"oldest {{ max_candidate_sequences: {many} }}", rows=many))
    for correlation_id in range(1, many + 1):
        bench.send(correlation_id, "S", settle=False)
    bench.clock.run()
    while bench.runner.running:
        bench.finish()
    meanwhile: list[int] = []
    end_sequence = bench.runner.end_sequence

    def ended(key: int, correlation_id: int | str, reason: str) -> None:
        if not bench.runner.ended:
            bench.clock.call_soon(lambda: meanwhile.append(bench.batcher.open))
        end_sequence(key, correlation_id, reason)

    bench.runner.end_sequence = ended  # type: ignore[method-assign]
    bench.wait(2000)
    assert 0 < meanwhile[0] < many
    assert len(bench.runner.ended) == many
    assert bench.idle()


# Memory


class Parameters(dict[str, str]):
    """What a request holds, with weak references to it."""


def test_an_answered_request_is_freed_without_the_garbage_collector(bench: Bench) -> None:
    held = Parameters()
    freed = weakref.ref(held)
    name = bench.send(1, "S", settle=False)
    bench.requests.pop(name).parameters = held  # type: ignore[assignment]
    del held
    gc.disable()
    try:
        bench.clock.run()
        bench.finish()
        assert bench.answers == ["1.1"]
        assert freed() is None
    finally:
        gc.enable()
