"""What policies decide together. Nothing here reads a clock, waits or changes anything.

scale out    the policy that wants the most instances wins
scale in     all tracking policies that may scale in have to agree, and nothing wants to scale out; of what they and
             step policies would leave, the most is left

A cooldown after a scale-out does not hold back a larger one: what was added counts as part of it. A cooldown after a
scale-in holds back another one, and a scale-out ends it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from halimede.hosting.scaling.steps import StepScaling
from halimede.hosting.scaling.tracking import TargetTracking

Policy = TargetTracking | StepScaling


@dataclass(frozen=True, slots=True)
class Reading:
    """An alarm of a policy that is in state ALARM.

    Attributes:
        policy: the policy's name.
        alarm: the alarm's name.
        values: of the metric, which the alarm looked at, the last one last; at least one.
        threshold: the alarm's.
        is_low: it is the alarm of a tracking policy that says that there are too many instances.
        is_new: the alarm has been evaluated since the last decision; a step policy acts only then.
    """

    policy: str
    alarm: str
    values: tuple[float, ...]
    threshold: float
    is_low: bool = False
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Within which bounds policies may decide.

    Attributes:
        minimum, maximum: instances.
        in_suspended, out_suspended: there is to be no scale-in, or no scale-out.
    """

    minimum: int
    maximum: int
    in_suspended: bool = False
    out_suspended: bool = False

    def nearest(self, capacity: int) -> int:
        """The capacity within the bounds that is nearest to one."""
        return max(self.minimum, min(self.maximum, capacity))


@dataclass(frozen=True, slots=True)
class LastScaling:
    """The last change that a policy has made.

    Attributes:
        when: it was complete, in seconds since 1970.
        before, after: how many instances there were to be.
    """

    when: float
    before: int
    after: int

    @property
    def is_out(self) -> bool:
        """Instances came."""
        return self.after > self.before

    def cools(self, cooldown_s: float, now: float) -> bool:
        """Whether a cooldown of that length is running; at most twice as long, if the clock is set back."""
        return abs(now - self.when) < cooldown_s


class Unscaled(StrEnum):
    """Why nothing is changed, as AWS calls it."""

    AT_MAXIMUM = "AlreadyAtMaxCapacity"
    AT_MINIMUM = "AlreadyAtMinCapacity"
    AT_DESIRED = "AlreadyAtDesiredCapacity"
    UNSCALABLE = "TargetServicePutResourceAsUnscalable"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done.

    Attributes:
        capacity: so many instances; the ones there are if nothing is to be changed.
        reading: because of it.
        unscaled: why nothing is changed, None if something is.
    """

    capacity: int
    reading: Reading
    unscaled: Unscaled | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one policy would have."""

    capacity: int
    reading: Reading


class Decider:
    """Decides for one variant."""

    def __init__(self, policies: Iterable[Policy], limits: Limits) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._limits = limits

    def decide(
        self, current: int, readings: Sequence[Reading], last: LastScaling | None, now: float
    ) -> Decision | None:
        """What is to be done; None for nothing, as a cooldown runs or scaling is suspended or not agreed upon.

        Args:
            current: how many instances there are to be now.
            readings: the alarms in state ALARM.
            last: the last change.
            now: in seconds since 1970.
        """
        readings = [reading for reading in readings if reading.policy in self._policies]
        highs = [self._upward(current, current, reading) for reading in readings]
        wanting = [wish for wish in highs if wish is not None]
        if wanting:
            return self._out(current, wanting, last, now)
        return self._in(current, readings, last, now)

    # out

    def _upward(self, base: int, current: int, reading: Reading) -> _Wish | None:
        """What a policy would have in place of `base` instances, if it wants more or is at its alarm for that."""
        policy = self._policies[reading.policy]
        if isinstance(policy, TargetTracking):
            return None if reading.is_low else _Wish(policy.needed(base, reading.values[-1]), reading)
        wanted = self._wanted(policy, base, reading)
        return _Wish(wanted, reading) if wanted is not None and wanted > current else None

    def _wanted(self, policy: StepScaling, base: int, reading: Reading) -> int | None:
        if not reading.is_new:
            return None
        return policy.wanted(base, policy.aggregation.of(reading.values) - reading.threshold)

    def _out(
        self, current: int, wishes: Sequence[_Wish], last: LastScaling | None, now: float
    ) -> Decision | None:
        if self._limits.out_suspended:
            return None
        allowed = []
        for wish in wishes:
            cooling = self._cools(wish.reading, last, now, is_out=True)
            if cooling is None:
                allowed.append(wish)
            else:
                larger = self._upward(cooling.before, current, wish.reading)
                if larger is not None and larger.capacity > current:
                    allowed.append(larger)
        if not allowed:
            return None
        wish = max(allowed, key=lambda wish: wish.capacity)
        capacity = self._limits.nearest(wish.capacity)
        if capacity > current:
            return Decision(capacity, wish.reading)
        unscaled = Unscaled.AT_DESIRED if wish.capacity <= current else Unscaled.AT_MAXIMUM
        return Decision(current, wish.reading, unscaled)

    # in

    def _in(
        self, current: int, readings: Sequence[Reading], last: LastScaling | None, now: float
    ) -> Decision | None:
        if self._limits.in_suspended:
            return None
        wishes = self._agreed(current, readings)
        for reading in readings:
            policy = self._policies[reading.policy]
            if isinstance(policy, StepScaling):
                wanted = self._wanted(policy, current, reading)
                if wanted is not None and wanted <= current:
                    wishes.append(_Wish(wanted, reading))
        allowed = [wish for wish in wishes if self._cools(wish.reading, last, now, is_out=False) is None]
        if not allowed or len(allowed) < len(wishes):
            return None
        wish = max(allowed, key=lambda wish: wish.capacity)
        capacity = self._limits.nearest(wish.capacity)
        if capacity < current:
            return Decision(capacity, wish.reading)
        unscaled = Unscaled.AT_DESIRED if wish.capacity >= current else Unscaled.AT_MINIMUM
        return Decision(current, wish.reading, unscaled)

    def _agreed(self, current: int, readings: Sequence[Reading]) -> list[_Wish]:
        """What the tracking policies would leave; nothing unless all that may scale in are at their low alarms."""
        low = {reading.policy: reading for reading in readings if reading.is_low}
        wishes = []
        for policy in self._policies.values():
            if not isinstance(policy, TargetTracking) or policy.is_in_disabled:
                continue
            reading = low.get(policy.name)
            if reading is None:
                return []
            wishes.append(_Wish(policy.reduced(current, reading.values, self._limits.minimum), reading))
        return wishes

    # cooldowns

    def _cools(
        self, reading: Reading, last: LastScaling | None, now: float, *, is_out: bool
    ) -> LastScaling | None:
        """The last change, if it was one in the same direction and its cooldown runs."""
        if last is None or last.is_out is not is_out:
            return None
        policy = self._policies[reading.policy]
        if isinstance(policy, StepScaling):
            cooldown = policy.cooldown_s
        else:
            cooldown = max(policy.out_cooldown_s if is_out else policy.in_cooldown_s, policy.settling_s)
        return last if last.cools(cooldown, now) else None
