"""Step scaling: how far a metric is beyond an alarm's threshold says how many instances come or go."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Adjustment(StrEnum):
    """What the number of a step means."""

    CHANGE = "ChangeInCapacity"
    PERCENT = "PercentChangeInCapacity"
    EXACT = "ExactCapacity"


class Aggregation(StrEnum):
    """What becomes of the values that an alarm looked at."""

    AVERAGE = "Average"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"

    def of(self, values: Sequence[float]) -> float:
        """One value of several."""
        if self is Aggregation.MINIMUM:
            return min(values)
        if self is Aggregation.MAXIMUM:
            return max(values)
        return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Step:
    """What is done while the metric is so far from the threshold.

    Attributes:
        lower, upper: the bounds of the distance; infinite where there is none.
        adjustment: instances, or per cent of them.
    """

    lower: float
    upper: float
    adjustment: int

    def holds(self, distance: float) -> bool:
        """Whether a metric is that far from the threshold: the bound that is nearer to the threshold is included."""
        if distance > 0:
            return self.lower <= distance < self.upper
        if distance < 0:
            return self.lower < distance <= self.upper
        return self.lower <= 0 <= self.upper


@dataclass(frozen=True, slots=True)
class StepScaling:
    """A step scaling policy. Times are seconds.

    Attributes:
        name: its name.
        kind: what the steps' numbers mean.
        steps: in the order of their bounds.
        cooldown_s: how long a change is given to take effect.
        least: a change by per cents is one of at least so many instances.
        aggregation: what becomes of the values that the alarm looked at.
    """

    name: str
    kind: Adjustment
    steps: tuple[Step, ...]
    cooldown_s: float
    least: int = 0
    aggregation: Aggregation = Aggregation.AVERAGE

    def wanted(self, capacity: int, distance: float) -> int | None:
        """So many instances are wanted, beginning with `capacity`; None if no step is for that distance."""
        step = next((step for step in reversed(self.steps) if step.holds(distance)), None)
        if step is None:
            return None
        if self.kind is Adjustment.EXACT:
            return step.adjustment
        if self.kind is Adjustment.CHANGE:
            return max(0, capacity + step.adjustment)
        return max(0, capacity + self._share(capacity, step.adjustment))

    def _share(self, capacity: int, percent: int) -> int:
        """Per cents of the instances: a part of one counts as one, and beyond that parts do not count."""
        size = max(1, capacity * abs(percent) // 100, self.least) if percent and capacity else 0
        return size if percent > 0 else -size
