"""Instances that come and go while sequences are under way."""

import pytest

from tests.engine.scheduling.sequences.bench import Bench, Runner, configuration

STRATEGIES = ["direct { }", "oldest { max_candidate_sequences: 1 }"]


@pytest.fixture(params=STRATEGIES, ids=["direct", "oldest"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Two instances with one slot each."""
    return Bench(configuration(request.param, rows=1), instances=2)


def join(bench: Bench) -> Runner:
    runner = Runner()
    bench.runners.append(runner)
    bench.batcher.join(runner)
    bench.clock.run()
    return runner


def leave(bench: Bench, instance: int) -> list[int]:
    """Let an instance leave: what gets an entry when its sequences are over."""
    left: list[int] = []
    bench.batcher.leave(bench.runners[instance], lambda: left.append(instance))
    bench.clock.run()
    return left


def test_a_sequence_that_waits_runs_on_an_instance_that_joins(bench: Bench) -> None:
    for name in (1, 2, 3):
        bench.send(name, "S")
    assert bench.batcher.pending == 1
    runner = join(bench)
    assert runner.batches == [["3.1"]]
    assert [bench.finish(instance) for instance in range(3)] == [["1.1"], ["2.1"], ["3.1"]]


def test_sequences_go_on_while_instances_join(bench: Bench) -> None:
    bench.send(1, "S")
    bench.finish(0)
    join(bench)
    bench.send(1)
    assert bench.runner.batches == [["1.1"], ["1.2"]]


def test_an_instance_without_sequences_leaves_at_once(bench: Bench) -> None:
    assert leave(bench, 1) == [1]
    bench.batcher.forget(bench.runners[1])
    for name in (1, 2):
        bench.send(name, "S")
    assert bench.runners[1].batches == []
    assert bench.batcher.pending == 1


def test_an_instance_leaves_when_its_sequences_are_over(bench: Bench) -> None:
    for name in (1, 2):
        bench.send(name, "S")
        bench.finish(name - 1)
    left = leave(bench, 1)
    bench.send(3, "S")  # waits for the other instance
    bench.send(2)
    assert bench.finish(1) == ["2.2"]
    assert not left
    bench.send(2, "E")
    assert not left, "its last request is under way"
    assert bench.finish(1) == ["2.3"]
    assert set(left) == {1}
    assert bench.runners[1].ended == [(2, 2, "end")]
    bench.batcher.forget(bench.runners[1])
    assert bench.runners[1].batches == [["2.1"], ["2.2"], ["2.3"]]
    bench.send(1, "E")
    bench.finish(0)
    bench.send(3, "E")
    bench.finish(0)
    bench.finish(0)
    assert bench.errors == {}
    assert bench.idle()


def test_an_instance_leaves_when_its_sequences_are_silent_for_too_long(bench: Bench) -> None:
    bench.send(1, "SE")
    bench.send(2, "S")
    bench.finish(0)
    bench.finish(1)
    left = leave(bench, 1)
    bench.wait(999)
    assert not left
    bench.wait(2)
    assert set(left) == {1}


def test_an_instance_leaves_when_it_crashes(bench: Bench) -> None:
    bench.send(1, "S")
    bench.send(2, "S")
    bench.finish(1)
    left = leave(bench, 1)
    bench.crash(1)
    assert set(left) == {1}
    bench.revive(1)
    bench.send(3, "S")
    assert bench.runners[1].batches == [["2.1"]]
    assert "is lost" in bench.errors[bench.send(2)]


def test_an_instance_leaves_when_its_sequence_is_cancelled(bench: Bench) -> None:
    for name in (1, 2):
        bench.send(name, "S")
    first, second = "2.1", bench.send(2)
    left = leave(bench, 1)
    bench.cancel(second)
    assert bench.runners[1].batches == [[first]]
    bench.finish(1)
    assert set(left) == {1}


def test_instances_without_sequences_may_change(bench: Bench) -> None:
    passive = Runner()
    bench.batcher.changed(passive)
    bench.send(1, "S")
    assert passive.batches == []
