"""Models with sequences that share a limiter, on a virtual clock."""

import pytest

from halimede.core.clock import VirtualClock
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from tests.engine.scheduling.sequences.bench import Bench, configuration

STRATEGIES = pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])


class Pair:
    """Two models that need the same."""

    def __init__(self, strategy: str, *, at_once: bool = False) -> None:
        self.clock = VirtualClock()
        self.limiter = RateLimiter([], self.clock.call_soon)
        self.benches = [
            Bench(configuration(strategy), at_once=at_once, clock=self.clock, limiter=self.limiter)
            for _ in range(2)
        ]

    def executing(self) -> list[int]:
        """How many batches each model executes."""
        return [len(bench.runner.running) for bench in self.benches]


@STRATEGIES
def test_their_batches_never_execute_at_once(strategy: str) -> None:
    pair = Pair(strategy)
    for bench in pair.benches:
        for flags in ("S", "", "E"):
            bench.send(1, flags)
            bench.send(2, flags)
    ended = 0
    while sum(pair.executing()):
        assert sum(pair.executing()) == 1
        pair.benches[pair.executing().index(1)].finish()
        pair.clock.run()
        ended += 1
    assert ended == 7, "the first batch was formed of one request"
    assert [sorted(bench.answers) for bench in pair.benches] == [
        ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    ] * 2


@STRATEGIES
def test_batches_that_run_at_once_give_back_too(strategy: str) -> None:
    pair = Pair(strategy, at_once=True)
    for flags in ("S", "", "E"):
        for bench in pair.benches:
            bench.send(1, flags)
    assert [bench.answers for bench in pair.benches] == [["1.1", "1.2", "1.3"]] * 2


@STRATEGIES
def test_on_a_loan_only_the_request_runs_that_it_is_for(strategy: str) -> None:
    pair = Pair(strategy)
    lender, borrower = pair.benches
    lender.send(1, "S")
    for name in (1, 2, 3):
        borrower.send(name, "S")
    assert pair.executing() == [1, 0]
    (claim,) = pair.limiter.waiting
    assert pair.limiter.lend(claim, pair.limiter.holders(), [borrower.requests["2.1"]])
    pair.clock.run()
    assert [each.loan for each in pair.limiter.holders()] == [0, 1]
    assert [name for name in borrower.finish() if name != "-"] == ["2.1"]
    assert pair.executing() == [1, 0], "the others wait until the lender has ended"
    lender.finish()
    pair.clock.run()
    assert [each.loan for each in pair.limiter.holders()] == [0], "it runs on no loan any more"
    assert [name for name in borrower.finish() if name != "-"] == ["1.1", "3.1"]


@STRATEGIES
def test_an_instance_that_ends_passes_its_turn_on(strategy: str) -> None:
    pair = Pair(strategy)
    first, second = pair.benches
    first.send(1, "S")
    second.send(1, "S")
    assert pair.executing() == [1, 0]
    second.runner.free = second.runner.healthy = False
    second.batcher.changed(second.runner)
    first.finish()
    first.send(1, "E")
    assert pair.executing() == [1, 0]
    second.runner.free = second.runner.healthy = True
    second.batcher.changed(second.runner)
    first.finish()
    pair.clock.run()
    assert pair.executing() == [0, 1]
