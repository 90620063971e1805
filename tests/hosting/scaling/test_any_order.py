"""Whatever happens in whatever order: bounds hold, changes come one at a time, and all of them end."""

# ruff: noqa: SLF001 - what is known is compared with a model of it

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.errors import invalid
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.scaling.activity import Status
from halimede.hosting.scaling.autoscaling import Autoscaling
from tests.hosting.scaling.fakes import FakeAlarms, FakeVariant, FakeVariants, State
from tests.hosting.scaling.serving import INVOCATIONS, NOON, SCOPE, TARGET

STEPS = st.one_of(
    st.tuples(st.just("bounds"), st.tuples(st.integers(1, 8), st.integers(1, 8)).map(sorted)),
    st.tuples(st.just("high"), st.floats(10.1, 100)),
    st.tuples(st.just("low"), st.floats(0, 8.9)),
    st.tuples(st.just("both"), st.floats(0, 100)),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("by hand"), st.integers(1, 12)),
    st.tuples(st.just("room"), st.integers(1, 12)),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1.0, 60.0, 400.0, -400.0, 86_400.0, -86_400.0])),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("schedule"), st.integers(1, 8)),
)


class Machine:
    """Autoscaling of one variant."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOON
        self.variants, self.alarms = FakeVariants(), FakeAlarms()
        self.variant = self.variants.variants[EndpointId(*SCOPE, "e"), "A"] = FakeVariant()
        self.autoscaling: Autoscaling

    async def start(self) -> None:
        path = self.directory / "scaling.db"
        self.autoscaling = Autoscaling(path, self.variants, self.alarms, now=lambda: self.now)
        await self.autoscaling.open()

    async def call(self, operation: str, **request: Any) -> None:
        await self.autoscaling.service().operations[operation]({**TARGET, **request}, Caller())

    async def prepare(self) -> None:
        await self.call("RegisterScalableTarget", MinCapacity=1, MaxCapacity=4)
        config = {"TargetTrackingScalingPolicyConfiguration": INVOCATIONS}
        await self.call("PutScalingPolicy", PolicyName="p", PolicyType="TargetTrackingScaling", **config)
        self.low, self.high = sorted(
            (name for _, name in self.alarms.alarms), key=lambda name: "AlarmHigh" in name
        )

    def evaluate(self, name: str, value: float, state: State = State.ALARM) -> None:
        self.alarms.evaluate(SCOPE, name, *[value] * 3, state=state)

    async def do(self, step: str, value: Any) -> None:
        if step == "bounds":
            await self.call("RegisterScalableTarget", MinCapacity=value[0], MaxCapacity=value[1])
        elif step in ("high", "low", "both"):
            self.evaluate(self.high, value, State.OK if step == "low" else State.ALARM)
            self.evaluate(self.low, value, State.OK if step == "high" else State.ALARM)
        elif step == "settle":
            self.variant.settle()
        elif step == "by hand":
            self.variant.desired = self.variant.running = value
        elif step == "room":
            self.variant.room = value
        elif step == "refuse":
            self.variant.refusal = invalid("not now") if value else None
        elif step == "time":
            self.now += value
        elif step == "restart":
            await self.autoscaling.stop()
            await self.start()
        else:
            bounds = {"ScalableTargetAction": {"MinCapacity": value}}
            await self.call("PutScheduledAction", ScheduledActionName="x", Schedule="rate(1 hour)", **bounds)

    async def tick(self) -> None:
        """A second passes, in which at most one change is begun, within the bounds."""
        before = len(self.variant.set_to)
        self.now += 1
        await self.autoscaling.tick()
        set_to = self.variant.set_to[before:]
        assert len(set_to) <= 1
        target = next(iter(self.autoscaling._state.targets.values()))
        assert all(target.minimum <= count <= target.maximum for count in set_to)
        going_on = [
            activity
            for activity in self.autoscaling._state.activities.of(SCOPE, self.now)
            if activity.status in (Status.PENDING, Status.IN_PROGRESS)
        ]
        assert len(going_on) <= 1

    async def calm_down(self) -> None:
        """Nothing stands in the way any more."""
        self.variant.refusal, self.variant.room = None, 1000
        for _ in range(3):
            self.variant.settle()
            self.now += 100
            await self.tick()


@settings(max_examples=50, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_bounds_hold_and_changes_end(steps: list[tuple[str, Any]]) -> None:
    async def run(directory: str) -> None:
        machine = Machine(Path(directory))
        await machine.start()
        try:
            await machine.prepare()
            for step, value in steps:
                await machine.do(step, value)
                await machine.tick()
            await machine.calm_down()
            state = machine.autoscaling._state
            assert state.activities.all_unfinished() == []
            (target,) = state.targets.values()
            assert target.is_bounded
        finally:
            await machine.autoscaling.stop()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))
