"""What a `DeploymentConfig` asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_SHORTEST_STEP = 0.1
"""A rest of less than so much of a step is shifted with the last step: 33 % has three steps, not four."""


class Strategy(StrEnum):
    """How requests come to the new fleet."""

    ALL_AT_ONCE = "ALL_AT_ONCE"
    CANARY = "CANARY"
    LINEAR = "LINEAR"
    ROLLING = "ROLLING"


@dataclass(frozen=True, slots=True)
class Size:
    """A part of a fleet (`CapacitySize`).

    Attributes:
        value: how many instances of each variant, or how many per cent of the fleet.
        is_percent: it is per cent.
    """

    value: int
    is_percent: bool

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Size":
        """The size that a `CapacitySize` describes."""
        return cls(document["Value"], document["Type"] == "CAPACITY_PERCENT")

    def share(self, counts: Mapping[str, int]) -> float:
        """Which part it is of a fleet with so many instances of each variant; at most all of it."""
        if self.is_percent:
            return min(self.value / 100, 1.0)
        total = sum(counts.values())
        return sum(min(self.value, count) for count in counts.values()) / total if total else 1.0

    def batch(self, count: int) -> int:
        """How many of so many instances it is; one at least."""
        return max(1, count * self.value // 100) if self.is_percent else min(self.value, count)


@dataclass(frozen=True, slots=True)
class Policy:
    """How an update is to go. Times are in seconds.

    Attributes:
        strategy: how requests come to the new fleet.
        size: the canary, a linear step, or a rolling batch; None if all is shifted at once.
        rollback_size: the batches in which a rolling update is rolled back; None for all at once.
        wait_s: how long alarms are watched after each shift.
        termination_wait_s: how long the old fleet is kept after that.
        timeout_s: what the update may take; 0 for any time.
        alarms: the names of the alarms that roll it back.
    """

    strategy: Strategy = Strategy.ALL_AT_ONCE
    size: Size | None = None
    rollback_size: Size | None = None
    wait_s: int = 0
    termination_wait_s: int = 0
    timeout_s: int = 0
    alarms: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> "Policy":
        """The policy of a `DeploymentConfig` that has been checked; without one, all at once."""
        config = config or {}
        alarms = tuple(
            each["AlarmName"] for each in config.get("AutoRollbackConfiguration", {}).get("Alarms", ())
        )
        if (rolling := config.get("RollingUpdatePolicy")) is not None:
            back = rolling.get("RollbackMaximumBatchSize")
            return cls(
                Strategy.ROLLING,
                Size.of(rolling["MaximumBatchSize"]),
                Size.of(back) if back else None,
                rolling["WaitIntervalInSeconds"],
                timeout_s=rolling.get("MaximumExecutionTimeoutInSeconds", 0),
                alarms=alarms,
            )
        policy = config.get("BlueGreenUpdatePolicy", {})
        routing = policy.get("TrafficRoutingConfiguration", {})
        strategy = Strategy(routing.get("Type", Strategy.ALL_AT_ONCE))
        size = routing.get(SIZE_MEMBERS.get(strategy, ""))
        return cls(
            strategy,
            Size.of(size) if size else None,
            wait_s=routing.get("WaitIntervalInSeconds", 0),
            termination_wait_s=policy.get("TerminationWaitInSeconds", 0),
            timeout_s=policy.get("MaximumExecutionTimeoutInSeconds", 0),
            alarms=alarms,
        )

    def shares(self, counts: Mapping[str, int]) -> Sequence[float]:
        """Which part of the requests the new fleet gets, step by step; the last one is 1.

        Args:
            counts: variant → how many instances the new fleet has in the end.
        """
        if self.strategy is Strategy.ROLLING:
            total = sum(counts.values())
            return [sum(batch.values()) / total if total else 1.0 for batch in self.batches(counts)]
        if self.size is None:
            return [1.0]
        first = self.size.share(counts)
        if self.strategy is Strategy.CANARY:
            return [first, 1.0] if first < 1 else [1.0]
        steps: list[float] = []
        while (share := (len(steps) + 1) * first) < 1 - _SHORTEST_STEP * first:
            steps.append(share)
        return [*steps, 1.0]

    def batches(self, counts: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
        """How many instances of each variant a rolling update has brought up, batch by batch.

        Args:
            counts: how many there are to be in the end.
        """
        assert self.size is not None
        # variants keep pace with each other, since both fleets share the requests of each in the same way
        steps = max([1, *(-(-count // self.size.batch(count)) for count in counts.values() if count)])
        return [
            {name: -(-count * step // steps) for name, count in counts.items()}
            for step in range(1, steps + 1)
        ]

    def waits_s(self, counts: Mapping[str, int]) -> int:
        """What an update waits at least, without the time that instances take."""
        return len(self.shares(counts)) * self.wait_s + self.termination_wait_s


SIZE_MEMBERS: Mapping[Strategy, str] = {
    Strategy.CANARY: "CanarySize",
    Strategy.LINEAR: "LinearStepSize",
}
"""The member of a `TrafficRoutingConfig` that holds the size of a step."""
