"""Target tracking: as many instances as keep a metric of each of them at a value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_EXACT = 1e-9
"""A need of 3.0000000001 instances is one of three."""


@dataclass(frozen=True, slots=True)
class TargetTracking:
    """A target tracking policy. Times are seconds.

    Attributes:
        name: its name.
        target: the value at which the metric is to be.
        out_cooldown_s: how long a scale-out is given to take effect.
        in_cooldown_s: how long there is no other scale-in after one.
        is_in_disabled: it never removes instances.
        settling_s: how long after a change the metric still shows what was before; cooldowns are not shorter.
    """

    name: str
    target: float
    out_cooldown_s: float
    in_cooldown_s: float
    is_in_disabled: bool = False
    settling_s: float = 0.0

    def needed(self, capacity: int, value: float) -> int:
        """So many instances bring the metric to the target.

        Args:
            capacity: the instances of which the metric was measured; 0 for none, and it is of the whole.
            value: of the metric.
        """
        return max(0, math.ceil(max(capacity, 1) * value / self.target - _EXACT))

    def reduced(self, capacity: int, values: Sequence[float], minimum: int) -> int:
        """So many instances are left after a scale-in: half of those that are too many go.

        The greatest of the values decides how many are needed, so that none of them would have been above the target.

        Args:
            capacity: the instances there are.
            values: of the metric, over the time for which it has been low.
            minimum: so many instances stay.

        Returns:
            What is needed if none may go.
        """
        needed = self.needed(capacity, max(values))
        surplus = capacity - max(needed, minimum)
        return capacity - (surplus + 1) // 2 if surplus > 0 else min(needed, capacity)
