"""The strategy oldest: batches of the requests that came first, at most one of each sequence."""

from tests.engine.scheduling.sequences.bench import Bench, configuration

THREE = "oldest { max_candidate_sequences: 3 }"


def test_a_batch_holds_one_request_of_a_sequence() -> None:
    bench = Bench(configuration(THREE))
    for name in (1, 1, 2, 1):
        bench.send(name, "S" if f"{name}.1" not in bench.requests else "", settle=False)
    bench.clock.run()
    bench.finish()
    bench.finish()
    assert bench.runner.batches == [["1.1", "2.1"], ["1.2"], ["1.3"]]


def test_more_sequences_than_candidates_wait_in_order() -> None:
    bench = Bench(configuration(THREE))
    for name in range(1, 6):
        bench.send(name, "SE", settle=False)
    bench.clock.run()
    bench.finish()
    assert bench.runner.batches == [["1.1", "2.1", "3.1"], ["4.1", "5.1"]]
    bench.finish()
    assert bench.idle()


def test_the_successor_in_a_slot_waits_for_the_end_to_be_answered() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 1 }"))
    bench.send(1, "SE")
    bench.send(2, "SE")
    assert bench.runner.batches == [["1.1"]]
    bench.finish()
    assert bench.runner.batches == [["1.1"], ["2.1"]]


def test_a_timeout_bounds_the_wait_for_a_slot_and_not_that_for_a_batch() -> None:
    bench = Bench(configuration(THREE))
    for flags in ("S", "", "", "", "", "E"):  # long enough for executions to be measured, were they
        bench.send(1, flags, timeout_us=100)
        if not flags:
            bench.wait(500)
            bench.finish()
    bench.send(2, "SE", timeout_us=100)
    bench.send(3, "SE", timeout_us=100)
    bench.wait(500)
    while bench.runner.running:
        bench.finish()
    assert not bench.errors
    assert len(bench.answers) == 8
    assert bench.idle()


def test_preferred_sizes_and_delays_hold() -> None:
    batching = (
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 50 }"
    )
    bench = Bench(configuration(batching))
    bench.send(1, "S")
    assert bench.runner.batches == []
    bench.send(2, "S")
    assert bench.runner.batches == [["1.1", "2.1"]]
    bench.finish()
    bench.send(3, "S")
    bench.wait(49)
    assert len(bench.runner.batches) == 1
    bench.wait(1)
    assert bench.runner.batches[1] == ["3.1"]


def test_sequences_stay_on_their_instance() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 2 }"), instances=2)
    for name in (1, 2, 3, 4):
        bench.send(name, "S")
    for _ in range(3):
        for number in (0, 1):
            while bench.runners[number].running:
                bench.finish(number)
        for name in (4, 3, 2, 1):
            bench.send(name)
    homes = [{row.split(".")[0] for batch in runner.batches for row in batch} for runner in bench.runners]
    assert homes == [{"1", "3"}, {"2", "4"}]


def test_without_a_number_of_candidates_there_is_one() -> None:
    bench = Bench(configuration("oldest { }"))
    bench.send(1, "S")
    bench.send(2, "S")
    bench.finish()
    assert bench.runner.batches == [["1.1"]]


def test_batches_that_run_at_once_are_answered_in_order() -> None:
    bench = Bench(configuration(THREE), at_once=True)
    for name, flags in ((1, "S"), (1, ""), (2, "SE"), (1, "E")):
        bench.send(name, flags, settle=False)
    bench.clock.run()
    assert [each for each in bench.answers if each.startswith("1.")] == ["1.1", "1.2", "1.3"]
    assert bench.idle()


def test_a_request_that_waits_for_its_batch_may_be_cancelled_and_with_it_its_sequence() -> None:
    bench = Bench(configuration(THREE))
    bench.send(9, "S")  # keeps the instance busy
    bench.send(1, "S")
    bench.send(1)
    bench.cancel("1.1")
    assert set(bench.errors) == {"1.1", "1.2"}
    bench.send(1)
    assert "must specify the START flag" in bench.errors["1.3"]
    bench.finish()
    assert bench.runner.batches == [["9.1"]]


def test_cancelling_a_later_request_takes_back_the_one_before_it_that_has_not_begun() -> None:
    bench = Bench(configuration(THREE))
    bench.send(9, "S")
    bench.send(1, "S")
    bench.send(1)
    bench.cancel("1.2")
    assert set(bench.errors) == {"1.1", "1.2"}
    bench.finish()
    assert bench.runner.batches == [["9.1"]]
    assert bench.batcher.open == 1


def test_an_end_that_waits_for_its_batch_may_be_cancelled() -> None:
    bench = Bench(configuration("oldest { max_candidate_sequences: 2 }"))
    bench.send(9, "S")
    bench.send(1, "SE")
    bench.send(2, "SE")  # succeeds 1
    bench.cancel("1.1")
    bench.finish()
    assert bench.runner.batches == [["9.1"], ["2.1"]]
    bench.finish()
    assert bench.batcher.open == 1
