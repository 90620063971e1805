"""Whatever happens in whatever order: an update ends, with one fleet that serves, and shares that go one way."""

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from halimede.hosting.control.deployments.plan import Plan
from halimede.hosting.control.deployments.policy import Policy, Size, Strategy
from halimede.hosting.control.deployments.progress import BACK, ENDED, WAITING, Progress, Stage

NOON = 1_700_000_000.0
COUNTS = st.dictionaries(st.sampled_from("AB"), st.integers(0, 8), min_size=1)
SIZES = st.builds(Size, st.integers(5, 50), st.just(True)) | st.builds(
    Size, st.integers(1, 4), st.just(False)
)
POLICIES = st.one_of(
    st.builds(
        Policy, st.just(Strategy.ALL_AT_ONCE), wait_s=st.integers(0, 9), termination_wait_s=st.integers(0, 9)
    ),
    st.builds(
        Policy,
        st.sampled_from([Strategy.CANARY, Strategy.LINEAR]),
        SIZES,
        wait_s=st.integers(0, 9),
        termination_wait_s=st.integers(0, 9),
        timeout_s=st.sampled_from([0, 600]),
    ),
    st.builds(
        Policy, st.just(Strategy.ROLLING), SIZES, st.none() | SIZES, st.integers(0, 9), timeout_s=st.just(600)
    ),
)
HALVES = Plan(Policy(Strategy.ROLLING, Size(50, True)), {"A": 4}, {"A": 4})
PLANS = st.builds(Plan, POLICIES, COUNTS, COUNTS)
EVENTS = st.lists(
    st.sampled_from(["go on"] * 6 + ["fail", "restart", "clock goes back", "look"]), max_size=40
)


def check(plan: Plan, progress: Progress) -> None:
    """What always holds."""
    assert 0 <= progress.share <= 1
    assert all(0 <= progress.old[name] <= count for name, count in plan.old.items())
    assert all(0 <= progress.new[name] <= count for name, count in plan.new.items())
    # a fleet of an asynchronous endpoint may have no instances at all
    if progress.share > 0 and any(plan.new.values()):
        assert any(progress.new.values())
    if progress.share < 1 and any(plan.old.values()):
        assert any(progress.old.values())
    assert (progress.until > 0) == (progress.stage in WAITING)
    assert bool(progress.reason) == (progress.stage in (*BACK, Stage.ROLLED_BACK, Stage.STUCK))
    assert Progress.from_document({**as_document(progress)}) == progress


def as_document(progress: Progress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in Progress.__dataclass_fields__}


@settings(max_examples=100, deadline=None)
@given(PLANS, EVENTS)
@example(HALVES, ["go on", "go on", "fail"])
@example(
    Plan(replace(HALVES.policy, rollback_size=Size(1, False)), {"A": 4}, {"A": 4}), ["go on"] * 5 + ["fail"]
)
def test_every_update_ends(plan: Plan, events: list[str]) -> None:
    now = NOON
    progress = plan.begin(now)
    steps = 0
    failed = False
    while progress.stage not in ENDED:
        check(plan, progress)
        before = progress
        event = events[steps] if steps < len(events) else "go on"
        steps += 1
        now += 1
        if event == "restart":
            progress = plan.restarted(progress, now)
        elif event == "clock goes back":
            now -= 1000
        elif event == "look":
            assert plan.is_overdue(progress, progress.began) is False
        elif event == "fail" and progress.stage is not Stage.SHRINKING_BACK:
            progress = plan.failed(progress, "it broke", now)
            assert progress.share <= before.share
            failed = True
        elif progress.stage in WAITING:
            left_s = plan.left_s(progress, now)
            assert left_s <= max(plan.policy.wait_s, plan.policy.termination_wait_s)
            now += max(0.0, left_s)
            progress = plan.elapsed(progress, now)
        else:
            progress = plan.arrived(progress, now)
        if failed:
            assert progress.share <= before.share
            assert progress.stage in (*BACK, Stage.ROLLED_BACK, Stage.STUCK)
        else:
            assert progress.share >= before.share
        assert steps < 1000
    check(plan, progress)
    if progress.stage is Stage.DONE:
        assert (progress.share, progress.new, failed) == (1.0, plan.new, False)
    elif progress.stage is Stage.ROLLED_BACK:
        assert (progress.share, progress.old) == (0.0, plan.old)
        assert not any(progress.new.values())
    else:
        assert plan.policy.strategy is Strategy.ROLLING


@settings(max_examples=60, deadline=None)
@given(PLANS)
@example(Plan(Policy(Strategy.ROLLING, Size(25, True)), {"A": 7, "B": 8}, {"A": 7, "B": 8}))
def test_a_rolling_update_needs_room_for_one_batch_only(plan: Plan) -> None:
    now = NOON
    progress = plan.begin(now)
    while progress.stage is not Stage.DONE:
        if plan.policy.strategy is Strategy.ROLLING and plan.old == plan.new:
            assert plan.policy.size is not None
            for name, count in plan.old.items():
                most = count + plan.policy.size.batch(count) + 1  # parts of instances are rounded up
                assert progress.old[name] + progress.new[name] <= most
        elif plan.policy.strategy is not Strategy.ROLLING:
            assert (progress.old, progress.new) == (plan.old, plan.new)
        now += 10
        progress = plan.elapsed(progress, now) if progress.stage in WAITING else plan.arrived(progress, now)


@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_a_bake_follows_each_shift(plan: Plan) -> None:
    now, bakes = NOON, []
    progress = plan.begin(now)
    while progress.stage is not Stage.DONE:
        if progress.stage is Stage.BAKING:
            bakes.append(progress.share)
            assert progress.until == now + plan.policy.wait_s
        now += 10
        progress = plan.elapsed(progress, now) if progress.stage in WAITING else plan.arrived(progress, now)
    assert bakes == list(plan.policy.shares(plan.new))


def test_a_deployment_that_takes_too_long_is_overdue_until_all_requests_are_shifted() -> None:
    plan = Plan(Policy(timeout_s=600), {"A": 1}, {"A": 1})
    progress = plan.begin(NOON)
    assert not plan.is_overdue(progress, NOON + 600)
    assert plan.is_overdue(progress, NOON + 601)
    progress = plan.arrived(progress, NOON)
    assert plan.is_overdue(progress, NOON + 601)
    progress = plan.elapsed(progress, NOON)
    assert progress.stage is Stage.TERMINATION_WAIT
    assert not plan.is_overdue(progress, NOON + 601)
    unlimited = Plan(Policy(), {"A": 1}, {"A": 1})
    assert not unlimited.is_overdue(unlimited.begin(NOON), NOON + 1e9)
