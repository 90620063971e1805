"""The host's control plane, autoscaling, routing and residency on a cluster of virtual time, much reduced."""

from dataclasses import replace
from functools import cache

from benchmarks.cluster.__main__ import QUICK_DAY
from benchmarks.cluster.day import Day, Report, Spike, live
from benchmarks.cluster.keeping import Size, keep
from halimede.hosting.metering.pace import Pace

_PERIOD_S = 15
"""What AWS's minute takes."""

DAY = replace(
    QUICK_DAY, low=4.0, peak=4.0, seconds=900.0, pace=Pace(_PERIOD_S), minimum=14, spikes=(), failures=()
)
"""A day that is like any other moment."""

SPIKE = replace(DAY, spikes=(Spike(0.2, 0.3, 2.5),))
FAILURES = replace(DAY, failures=(0.3, 0.5, 0.51))


@cache
def report(day: Day) -> Report:
    """What came of a day."""
    return live(day)


def check_counts(day: Day) -> None:
    """Each request has one outcome, and figures that tell of the same agree."""
    told = report(day)
    outcomes = told.outcomes
    assert (
        outcomes.sent == outcomes.done == outcomes.answered + outcomes.lost + sum(outcomes.refused.values())
    )
    assert len(outcomes.latencies) == outcomes.answered
    assert min(outcomes.latencies) >= day.request_s * 0.999
    assert outcomes.hits + len(outcomes.waits) + sum(outcomes.refused.values()) == outcomes.sent
    assert told.fetches <= told.loads
    assert told.belady >= max(told.lru, told.lfu)
    if not day.failures:
        assert sum(told.counts) <= told.instance_s <= 1.05 * sum(told.counts)  # they run before they serve


def test_every_request_of_a_calm_day_is_answered_and_nothing_is_scaled() -> None:
    told = report(DAY)
    check_counts(DAY)
    assert told.outcomes.answered == told.outcomes.sent
    assert set(told.counts) == {DAY.minimum}


def test_scaling_out_follows_a_spike_and_does_not_oscillate() -> None:
    told = report(SPIKE)
    check_counts(SPIKE)
    assert told.outcomes.answered == told.outcomes.sent
    begins, ends = (int(share * SPIKE.seconds) for share in (0.2, 0.5))
    before, needed = told.wanted[0], told.wanted[begins]
    assert needed > 1.5 * before
    assert set(told.counts[: begins - 1]) == {before}
    # three periods above the target, the one that has begun, and the time that instances take to start
    assert min(told.counts[begins + 6 * _PERIOD_S : ends]) >= 0.8 * needed  # requests come at random
    assert told.counts[ends - 1] >= 0.95 * needed
    assert max(told.counts) <= 1.2 * needed
    assert told.desired[-1] < max(told.desired)
    assert told.turnarounds <= 1


def test_only_requests_that_ran_on_a_node_that_fails_are_lost() -> None:
    told = report(FAILURES)
    check_counts(FAILURES)
    assert told.lost_instances > 0
    outcomes = told.outcomes
    assert outcomes.answered + outcomes.lost == outcomes.sent
    assert outcomes.lost <= told.lost_instances * FAILURES.hardware.processors * 2
    assert told.counts[-1] == told.wanted[-1]
    assert set(told.desired) == {told.wanted[0]}


def test_popular_models_stay() -> None:
    size = Size(instances=10, each=20, per_node=5, models=2_000, requests=8_000)
    kept = keep("Zipf 0.9", size)
    assert kept.outcomes.answered == size.requests
    assert kept.hits > 1.05 * kept.lru
    assert kept.hits >= 0.95 * kept.lfu
    assert kept.hits < kept.belady


def test_models_in_bursts_stay_as_long_as_the_least_recently_used_order_keeps_them() -> None:
    size = Size(instances=10, each=20, per_node=5, models=2_000, requests=8_000)
    kept = keep("bursts", size)
    assert kept.outcomes.answered == size.requests
    assert kept.hits >= 0.98 * kept.lru
    assert kept.hits > 1.2 * kept.lfu
