"""What policies decide together, on a clock that is a number."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.scaling.decision import (
    Decider,
    Decision,
    LastScaling,
    Limits,
    Policy,
    Reading,
    Unscaled,
)
from halimede.hosting.scaling.steps import Adjustment, Aggregation, Step, StepScaling
from halimede.hosting.scaling.tracking import TargetTracking

INFINITY = math.inf
LIMITS = Limits(1, 20)
NOW = 1_772_625_600.0


def tracking(
    name: str = "t", target: float = 10.0, cooldown_s: float = 300.0, *, disabled: bool = False
) -> TargetTracking:
    return TargetTracking(name, target, cooldown_s, cooldown_s, disabled, settling_s=120.0)


def stepping(
    *steps: Step,
    name: str = "s",
    kind: Adjustment = Adjustment.CHANGE,
    cooldown_s: float = 300.0,
    least: int = 0,
) -> StepScaling:
    return StepScaling(name, kind, steps or (Step(0, INFINITY, 1),), cooldown_s, least)


def high(*values: float, policy: str = "t") -> Reading:
    return Reading(policy, f"{policy}-high", values, 10.0)


def low(*values: float, policy: str = "t") -> Reading:
    return Reading(policy, f"{policy}-low", values, 9.0, is_low=True)


def breach(*values: float, policy: str = "s", threshold: float = 50.0, is_new: bool = True) -> Reading:
    return Reading(policy, f"{policy}-alarm", values, threshold, is_new=is_new)


def decide(
    current: int,
    policies: Policy | Iterable[Policy],
    *readings: Reading,
    limits: Limits = LIMITS,
    last: LastScaling | None = None,
    now: float = NOW,
) -> Decision | None:
    if isinstance(policies, (TargetTracking, StepScaling)):
        policies = [policies]
    return Decider(policies, limits).decide(current, readings, last, now)


def capacity(decision: Decision | None) -> int | None:
    return None if decision is None or decision.unscaled else decision.capacity


def unscaled(decision: Decision | None) -> Unscaled | None:
    return None if decision is None else decision.unscaled


# target tracking


@pytest.mark.parametrize(
    ("current", "value", "expected"),
    [(1, 10.1, 2), (1, 20.0, 2), (1, 100.0, 10), (3, 15.0, 5), (4, 12.5, 5), (10, 11.0, 11), (2, 1e300, 20)],
)
def test_scaling_out_is_in_proportion(current: int, value: float, expected: int) -> None:
    assert capacity(decide(current, tracking(), high(value))) == expected


def test_the_last_value_decides_how_far_to_scale_out() -> None:
    assert capacity(decide(2, tracking(), high(90.0, 60.0, 20.0))) == 4


@pytest.mark.parametrize(
    ("current", "values", "expected"),
    [
        (10, (0.0, 0.0), 5),
        (5, (0.0,), 3),
        (2, (0.0,), 1),
        (10, (4.0, 1.0), 7),  # 4 are needed: half of the other 6 go
        (10, (8.0,), 9),
        (20, (5.0,), 15),
        (3, (6.0,), 2),
    ],
)
def test_scaling_in_removes_half_of_what_is_too_much(
    current: int, values: tuple[float, ...], expected: int
) -> None:
    assert capacity(decide(current, tracking(), low(*values))) == expected


def test_an_instance_that_is_needed_stays() -> None:
    decision = decide(2, tracking(), low(8.0, 5.1, 3.0))
    assert unscaled(decision) is Unscaled.AT_DESIRED
    assert capacity(decide(2, tracking(), low(5.0))) == 1


def test_a_policy_of_which_scaling_in_is_disabled_only_scales_out() -> None:
    policy = tracking(disabled=True)
    assert decide(5, policy, low(0.0)) is None
    assert capacity(decide(5, policy, high(20.0))) == 10


def test_no_policy_goes_beyond_the_bounds() -> None:
    assert capacity(decide(5, tracking(), high(100.0), limits=Limits(1, 8))) == 8
    assert unscaled(decide(8, tracking(), high(100.0), limits=Limits(1, 8))) is Unscaled.AT_MAXIMUM
    assert capacity(decide(5, tracking(), low(0.0), limits=Limits(4, 8))) == 4
    assert unscaled(decide(4, tracking(), low(0.0), limits=Limits(4, 8))) is Unscaled.AT_MINIMUM
    # instance counts that were set by hand may be outside
    assert unscaled(decide(12, tracking(), high(100.0), limits=Limits(1, 8))) is Unscaled.AT_MAXIMUM
    assert capacity(decide(12, tracking(), low(0.0), limits=Limits(1, 4))) == 4
    assert unscaled(decide(1, tracking(), low(0.0), limits=Limits(4, 8))) is Unscaled.AT_MINIMUM
    assert capacity(decide(1, tracking(), high(11.0), limits=Limits(4, 8))) == 4


def test_suspended_directions() -> None:
    assert decide(5, tracking(), high(50.0), limits=Limits(1, 8, out_suspended=True)) is None
    assert capacity(decide(5, tracking(), low(0.0), limits=Limits(1, 8, out_suspended=True))) == 3
    assert decide(5, tracking(), low(0.0), limits=Limits(1, 8, in_suspended=True)) is None
    assert capacity(decide(5, tracking(), high(11.0), limits=Limits(1, 8, in_suspended=True))) == 6


# cooldowns


def test_a_cooldown_after_scaling_out_holds_back_what_the_last_one_has_added() -> None:
    last = LastScaling(NOW - 100, before=2, after=6)
    assert decide(6, tracking(), high(30.0), last=last) is None  # 2 × 30 / 10 is what there is
    assert capacity(decide(6, tracking(), high(40.0), last=last)) == 8
    assert capacity(decide(6, tracking(), high(30.0), last=last, now=NOW + 200)) == 18


def test_a_cooldown_after_scaling_in_holds_back_another_one_and_scaling_out_ends_it() -> None:
    last = LastScaling(NOW - 100, before=6, after=4)
    assert decide(4, tracking(), low(0.0), last=last) is None
    assert capacity(decide(4, tracking(), high(20.0), last=last)) == 8
    assert capacity(decide(4, tracking(), low(0.0), last=last, now=NOW + 200)) == 2
    # the scale-out is the last change now
    assert capacity(decide(8, tracking(), low(0.0), last=LastScaling(NOW, 4, 8))) == 4


def test_a_tracking_policy_waits_until_the_metric_shows_the_last_change() -> None:
    policy = tracking(cooldown_s=0)
    assert decide(6, policy, high(30.0), last=LastScaling(NOW - 100, 2, 6)) is None
    assert capacity(decide(6, policy, high(30.0), last=LastScaling(NOW - 120, 2, 6))) == 18
    assert decide(4, policy, low(0.0), last=LastScaling(NOW - 100, 6, 4)) is None


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 86400.0 * 365])
def test_a_clock_that_jumps_makes_no_cooldown_eternal(jump: float) -> None:
    last = LastScaling(NOW - 10, before=6, after=4)
    assert capacity(decide(4, tracking(), low(0.0), last=last, now=NOW + jump)) == 2


def test_a_clock_that_is_set_back_a_little_does_not_end_a_cooldown() -> None:
    assert decide(4, tracking(), low(0.0), last=LastScaling(NOW, 6, 4), now=NOW - 5) is None


# step scaling

STEPS = (Step(0, 10, 1), Step(10, 20, 2), Step(20, INFINITY, 5))


@pytest.mark.parametrize(
    ("value", "expected"), [(50.0, 3), (59.9, 3), (60.0, 4), (69.9, 4), (70.0, 7), (1e9, 7), (49.0, None)]
)
def test_steps_out(value: float, expected: int | None) -> None:
    assert capacity(decide(2, stepping(*STEPS), breach(value))) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(50.0, 9), (40.1, 9), (40.0, 8), (30.1, 8), (30.0, 5), (-9.0, 5), (51.0, None)]
)
def test_steps_in(value: float, expected: int | None) -> None:
    policy = stepping(Step(-INFINITY, -20, -5), Step(-20, -10, -2), Step(-10, 0, -1))
    assert capacity(decide(10, policy, breach(value))) == expected


@pytest.mark.parametrize(
    ("current", "percent", "least", "expected"),
    [
        (10, 30, 0, 13),
        (4, 30, 0, 5),  # 1.2 is 1
        (2, 10, 0, 3),  # 0.2 is 1
        (4, 25, 2, 6),
        (10, -25, 0, 8),  # -2.5 is -2
        (10, -5, 0, 9),  # -0.5 is -1
        (10, -5, 3, 7),
        (3, -100, 0, 1),
        (2, 1000, 0, 20),
    ],
)
def test_changes_by_per_cents(current: int, percent: int, least: int, expected: int) -> None:
    policy = stepping(Step(0, INFINITY, percent), kind=Adjustment.PERCENT, least=least)
    assert capacity(decide(current, policy, breach(60.0))) == expected


def test_exact_capacities() -> None:
    policy = stepping(Step(0, INFINITY, 7), kind=Adjustment.EXACT)
    assert capacity(decide(2, policy, breach(60.0))) == 7
    assert capacity(decide(9, policy, breach(60.0))) == 7
    assert unscaled(decide(7, policy, breach(60.0))) is Unscaled.AT_DESIRED
    assert capacity(decide(2, policy, breach(60.0), limits=Limits(1, 5))) == 5


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [(Aggregation.AVERAGE, 4), (Aggregation.MINIMUM, 3), (Aggregation.MAXIMUM, 7)],
)
def test_values_are_aggregated(aggregation: Aggregation, expected: int) -> None:
    policy = StepScaling("s", Adjustment.CHANGE, STEPS, 300.0, aggregation=aggregation)
    assert capacity(decide(2, policy, breach(51.0, 80.0, 55.0))) == expected


def test_a_larger_step_during_a_cooldown_adds_only_the_difference() -> None:
    last = LastScaling(NOW - 60, before=4, after=6)
    assert decide(6, stepping(*STEPS), breach(60.0), last=last) is None
    assert capacity(decide(6, stepping(*STEPS), breach(80.0), last=last)) == 9


def test_a_step_policy_acts_only_when_its_alarm_has_been_evaluated() -> None:
    assert decide(2, stepping(), breach(60.0, is_new=False)) is None


# several policies


def test_the_policy_that_wants_the_most_wins() -> None:
    policies: list[Policy] = [tracking("a"), tracking("b"), stepping(Step(0, INFINITY, 3))]
    readings = [high(12.0, policy="a"), high(25.0, policy="b"), breach(60.0)]
    decision = decide(2, policies, *readings)
    assert decision is not None
    assert (decision.capacity, decision.reading.policy) == (5, "b")
    decision = decide(10, [stepping(Step(0, INFINITY, 3), name="a"),
                           stepping(Step(0, INFINITY, 200), name="b", kind=Adjustment.PERCENT)],
                      breach(60.0, policy="a"), breach(60.0, policy="b"), limits=Limits(1, 50))  # fmt: skip
    assert capacity(decision) == 30


def test_tracking_policies_scale_in_only_together() -> None:
    policies = [tracking("a"), tracking("b"), tracking("c", disabled=True)]
    assert decide(10, policies, low(0.0, policy="a")) is None
    decision = decide(10, policies, low(0.0, policy="a"), low(6.0, policy="b"))
    assert decision is not None
    assert (decision.capacity, decision.reading.policy) == (8, "b")


def test_a_policy_that_wants_more_forbids_scaling_in() -> None:
    policies: list[Policy] = [tracking("a"), stepping(Step(-INFINITY, 0, -1))]
    assert capacity(decide(4, policies, breach(20.0))) == 3
    last = LastScaling(NOW - 60, before=1, after=4)
    assert decide(4, policies, high(11.0, policy="a"), breach(20.0), last=last) is None


def test_policies_that_contradict_each_other_do_not_scale_in_and_out_by_turns() -> None:
    policies = [stepping(Step(0, INFINITY, 2), name="out"), stepping(Step(-INFINITY, 0, -2), name="in")]
    readings = [breach(60.0, policy="out"), breach(40.0, policy="in")]
    current, last, changes = 4, None, []
    for minute in range(60):
        decision = decide(current, policies, *readings, last=last, now=NOW + 60 * minute)
        if (wanted := capacity(decision)) is not None:
            changes.append(wanted - current)
            last, current = LastScaling(NOW + 60 * minute, current, wanted), wanted
    assert current == LIMITS.maximum
    assert set(changes) == {2}


def test_readings_of_policies_that_are_gone_do_not_count() -> None:
    assert decide(4, [], high(100.0), low(0.0), breach(60.0)) is None
    assert decide(4, tracking(), high(100.0, policy="gone")) is None


# whatever comes

POLICIES = st.lists(
    st.one_of(
        st.builds(
            TargetTracking,
            st.sampled_from("abc"),
            st.floats(0.1, 1000),
            st.floats(0, 600),
            st.floats(0, 600),
            st.booleans(),
            st.just(120.0),
        ),
        st.builds(
            StepScaling,
            st.sampled_from("abc"),
            st.sampled_from(Adjustment),
            st.lists(
                st.builds(Step, st.just(-INFINITY), st.just(INFINITY), st.integers(0, 300)),
                min_size=1,
                max_size=1,
            ).map(tuple),
            st.floats(0, 600),
            st.integers(0, 5),
            st.sampled_from(Aggregation),
        ),
    ),
    max_size=3,
)
READINGS = st.lists(
    st.builds(
        Reading,
        st.sampled_from("abc"),
        st.just("alarm"),
        st.lists(st.floats(0, 1e6), min_size=1, max_size=5).map(tuple),
        st.floats(0, 100),
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
)
BOUNDS = (
    st.tuples(st.integers(1, 50), st.integers(1, 50)).map(sorted).map(lambda each: Limits(each[0], each[1]))
)
LASTS = st.none() | st.builds(
    LastScaling, st.floats(NOW - 1000, NOW + 1000), st.integers(1, 50), st.integers(1, 50)
)


@settings(max_examples=100)
@given(POLICIES, READINGS, BOUNDS, LASTS, st.integers(1, 60))
def test_a_change_is_never_beyond_the_bounds(
    policies: list[Policy], readings: list[Reading], limits: Limits, last: LastScaling | None, current: int
) -> None:
    decision = decide(current, policies, *readings, limits=limits, last=last)
    if decision is None:
        return
    if decision.unscaled is None:
        assert limits.minimum <= decision.capacity <= limits.maximum
        assert decision.capacity != current
    else:
        assert decision.capacity == current


@settings(max_examples=60, deadline=None)
@given(
    load=st.floats(0, 500),
    begin=st.integers(1, 40),
    cooldown=st.sampled_from([0.0, 60.0, 300.0]),
    delay=st.integers(1, 3),
)
def test_constant_load_is_met_without_oscillation(
    load: float, begin: int, cooldown: float, delay: int
) -> None:
    """The capacity goes one way until it is enough, and stays: whatever the load, and if instances take their time."""
    policy = TargetTracking("t", 10.0, cooldown, cooldown, settling_s=120.0)
    limits = Limits(1, 60)
    current, running, coming = begin, begin, 0
    last, values, changes = None, [], []
    for minute in range(400):
        now = NOW + 60 * minute
        values.append(load / running)
        if coming:
            coming -= 1
            if not coming:
                running = current
                assert last is not None
                last = LastScaling(now, last.before, last.after)
            continue  # the endpoint is being updated
        readings = []
        if min(values[-3:]) > 10 and len(values) >= 3:
            readings.append(high(*values[-3:]))
        if max(values[-15:]) < 9 and len(values) >= 15:
            readings.append(low(*values[-15:]))
        wanted = capacity(decide(current, policy, *readings, limits=limits, last=last, now=now))
        if wanted is not None:
            changes.append(wanted - current)
            last, current, coming = LastScaling(now, current, wanted), wanted, delay
    assert all(change > 0 for change in changes) or all(change < 0 for change in changes)
    assert load / current <= 10
    settled = math.ceil(load / 10 - 1e-9)
    assert current >= settled
    assert load / current >= 9 or current - max(1, settled) == 0


def test_tracking_begins_with_no_instances_at_all() -> None:
    limits = Limits(0, 5)
    assert decide(0, tracking(), high(35.0), limits=limits) == Decision(4, high(35.0))
    assert decide(0, tracking(), high(1000.0), limits=limits) == Decision(5, high(1000.0))
    assert decide(1, tracking(), low(*[0.0] * 15), limits=limits) == Decision(0, low(*[0.0] * 15))


def test_step_from_no_instances_at_all() -> None:
    reading = breach(60.0)
    assert decide(0, stepping(), reading, limits=Limits(0, 5)) == Decision(1, reading)
