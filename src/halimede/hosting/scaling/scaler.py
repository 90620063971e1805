"""Brings variants to what their policies and bounds say, one activity after the other.

an alarm is in ALARM ──► `note` ──► `tick` ──► decision ──► activity: Pending ──► InProgress ──► Successful …

Nothing is done between ticks, so that alarms which are evaluated together are decided on together.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from halimede.hosting.capacity import VariantCapacity, Variants
from halimede.hosting.errors import ApiError
from halimede.hosting.scaling.activity import Activity
from halimede.hosting.scaling.alarms import AlarmAction, Alarms
from halimede.hosting.scaling.changes import Changes
from halimede.hosting.scaling.configs import policy_of
from halimede.hosting.scaling.decision import Decider, Decision, Reading, Unscaled
from halimede.hosting.scaling.names import VariantId
from halimede.hosting.scaling.records import STEPPING, PolicyRecord, Target
from halimede.hosting.scaling.state import ScalingState

logger = logging.getLogger("halimede")

_ALARM = "ALARM"
_RETRY_S = 60
"""In AWS's seconds: so long after bounds could not be applied they are applied again."""


class Scaler:
    """Scales. Lives on the event loop."""

    def __init__(
        self,
        state: ScalingState,
        variants: Variants,
        alarms: Alarms,
        seconds: Callable[[float], float],
        now: Callable[[], float],
    ) -> None:
        """A scaler.

        Args:
            state: what is scaled, and how.
            variants: what it scales.
            alarms: because of which.
            seconds: what a time of AWS's takes here.
            now: the time, in seconds since 1970.
        """
        self._state = state
        self._variants = variants
        self._alarms = alarms
        self._seconds = seconds
        self._now = now
        self._changes = Changes(state, variants, now)
        self._noted: dict[VariantId, dict[str, AlarmAction]] = {}  # by the alarm's name, as evaluated last
        self._new: dict[VariantId, set[str]] = {}  # since the last tick
        self._retries: dict[VariantId, float] = {}

    def note(self, action: AlarmAction) -> None:
        """An alarm of a policy has been evaluated.

        Raises:
            ApiError: the alarm's account has no such policy in its region.
        """
        policy = self._state.policy(action.arn)
        if policy is None or policy.variant.scope != action.scope:
            raise ApiError("ObjectNotFoundException", f"No scaling policy found for ARN: {action.arn}")
        if action.state.value != _ALARM or not action.values:
            return
        self._noted.setdefault(policy.variant, {})[action.alarm] = action
        self._new.setdefault(policy.variant, set()).add(action.alarm)

    def forget(self, variant: VariantId) -> None:
        """A variant is not scaled any more."""
        for noted in (self._noted, self._new, self._retries):
            noted.pop(variant, None)

    async def tick(self) -> None:
        """Follow up what goes on, and do what is to be done. Whoever calls it holds `ScalingState.changing`."""
        for activity in self._state.activities.all_unfinished():
            await self._safely(activity.variant, self._changes.follow(activity))
        for target in list(self._state.targets.values()):
            if not target.is_bounded:
                await self._safely(target.variant, self.bound(target))
        new, self._new = self._new, {}
        for variant, alarms in new.items():
            if variant in self._state.targets:
                await self._safely(variant, self._decide(self._state.targets[variant], alarms))

    async def _safely(self, variant: VariantId, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            logger.error("%s cannot be scaled: %s", variant.resource, error.message)
        except Exception:  # of one variant, and the log has what nobody foresaw
            logger.exception("%s cannot be scaled", variant.resource)

    def _capacity(self, variant: VariantId) -> VariantCapacity | None:
        return self._variants.capacity(variant.endpoint_id, variant.variant)

    # bounds

    async def bound(self, target: Target, *, at_once: bool = False) -> None:
        """Bring the number of instances within the bounds; if that is not possible now, another tick does it.

        Args:
            target: whose.
            at_once: also if it has failed just now.

        Raises:
            ApiError: what is done cannot be written down.
        """
        now = self._now()
        capacity = self._capacity(target.variant)
        if capacity is None or not capacity.is_settled:
            return
        after = target.limits.nearest(capacity.desired)
        if after == capacity.desired:
            self._retries.pop(target.variant, None)
            await self._state.put_target(replace(target, is_bounded=True))
            return
        if not at_once and self._is_retried_later(target.variant, now):
            return
        self._retries[target.variant] = now
        which = "minimum" if after > capacity.desired else "maximum"
        cause = f"{which} capacity was set to {after}"
        await self._changes.begin(target.variant, capacity.desired, after, cause, by_policy=False)

    def _is_retried_later(self, variant: VariantId, now: float) -> bool:
        tried = self._retries.get(variant)
        return tried is not None and abs(now - tried) < self._seconds(_RETRY_S)

    # decisions

    async def _decide(self, target: Target, new: Iterable[str]) -> None:
        """Do what the policies of a variant say together."""
        variant = target.variant
        capacity = self._capacity(variant)
        if capacity is None:
            return
        policies = self._state.policies(variant)
        decider = Decider((policy_of(each, self._seconds) for each in policies.values()), target.limits)
        readings = self._readings(variant, set(new))
        decision = decider.decide(capacity.desired, readings, target.last, self._now())
        if decision is None:
            return
        reading = decision.reading
        cause = f"monitor alarm {reading.alarm} in state ALARM triggered policy {reading.policy}"
        if decision.unscaled is not None:
            await self._note_unscaled(target, cause, decision)
        elif not capacity.is_settled or self._state.activities.unfinished(variant) is not None:
            blocked = Decision(capacity.desired, reading, Unscaled.UNSCALABLE)
            await self._note_unscaled(target, cause, blocked)
        else:
            await self._changes.begin(variant, capacity.desired, decision.capacity, cause, by_policy=True)

    def _readings(self, variant: VariantId, new: set[str]) -> list[Reading]:
        """The alarms of a variant's policies that are in state ALARM."""
        noted = self._noted.get(variant, {})
        readings = []
        for name, action in list(noted.items()):
            policy, alarm = self._state.policy(action.arn), self._alarms.find(action.scope, name)
            if policy is None or alarm is None or alarm.state.value != _ALARM:
                del noted[name]
            elif policy.kind == STEPPING or name in policy.alarms:
                readings.append(_reading(policy, action, is_new=name in new))
        return readings

    async def _note_unscaled(self, target: Target, cause: str, decision: Decision) -> None:
        """Remember that nothing was changed, unless that is what was remembered last."""
        assert decision.unscaled is not None
        capacities = {
            Unscaled.AT_MAXIMUM: {"MaxCapacity": target.maximum},
            Unscaled.AT_MINIMUM: {"MinCapacity": target.minimum},
            Unscaled.AT_DESIRED: {"CurrentCapacity": decision.capacity},
            Unscaled.UNSCALABLE: {},
        }[decision.unscaled]
        activities = self._state.activities
        latest = activities.latest(target.variant)
        fresh = Activity.of_unscaled(
            target.variant, activities.next_number(), cause, decision.unscaled, self._now(), **capacities
        )
        if latest is None or (latest.cause, latest.reasons) != (fresh.cause, fresh.reasons):
            await activities.put(fresh)


def _reading(policy: PolicyRecord, action: AlarmAction, *, is_new: bool) -> Reading:
    return Reading(
        policy.name,
        action.alarm,
        tuple(reversed(action.values)),
        action.threshold or 0.0,
        is_low=action.alarm in policy.alarms[1:],
        is_new=is_new,
    )
