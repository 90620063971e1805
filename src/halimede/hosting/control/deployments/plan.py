"""Which step of an update follows which: a state machine without a clock, fleets or alarms of its own.

Blue/green: the whole new fleet comes up, then requests are shifted, in one step or several. Rolling: a batch of the
new fleet comes up, gets its part of the requests, and after the bake as large a part of the old fleet ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from halimede.hosting.control.deployments.policy import Policy, Strategy
from halimede.hosting.control.deployments.progress import BACK, ENDED, WAITING, Progress, Stage

_TOLERANCE = 1e-9
"""What sums of shares may be wrong by."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an update does.

    Attributes:
        policy: how it is to go.
        old: variant → how many instances the fleet has that is to be replaced.
        new: variant → how many the new fleet is to have.
    """

    policy: Policy
    old: Mapping[str, int]
    new: Mapping[str, int]

    @property
    def steps(self) -> int:
        """How many shifts of requests there are."""
        return len(self.policy.shares(self.new))

    def begin(self, now: float) -> Progress:
        """What comes first."""
        return Progress(Stage.PROVISIONING, 0, 0.0, self.old, self._batch(0), now, now)

    def arrived(self, progress: Progress, now: float) -> Progress:
        """What follows when the fleets are as the progress says."""
        match progress.stage:
            case Stage.PROVISIONING:
                share = self.policy.shares(self.new)[progress.step]
                return self._go(progress, Stage.BAKING, now, share=share)
            case Stage.SHRINKING:
                step = progress.step + 1
                return self._go(progress, Stage.PROVISIONING, now, step=step, new=self._batch(step))
            case Stage.GROWING_BACK:
                share, new = self._left(progress)
                return self._go(progress, Stage.SHRINKING_BACK, now, share=share, new=new)
            case Stage.SHRINKING_BACK:
                if progress.old == self.old:
                    return self._go(progress, Stage.ROLLED_BACK, now)
                return self._grow_back(progress, now)
        raise ValueError(f"nothing arrives in stage {progress.stage}")

    def elapsed(self, progress: Progress, now: float) -> Progress:
        """What follows when the time of a stage that waits is over."""
        assert progress.stage in WAITING
        if progress.stage is Stage.TERMINATION_WAIT:
            return self._go(progress, Stage.DONE, now)
        if progress.step + 1 == self.steps:
            return self._go(progress, Stage.TERMINATION_WAIT, now)
        if self.policy.strategy is Strategy.ROLLING:
            return self._go(progress, Stage.SHRINKING, now, old=self._rest(progress.share))
        # once more: whatever has ended meanwhile is to be there again before more requests come
        return self._go(progress, Stage.PROVISIONING, now, step=progress.step + 1)

    def failed(self, progress: Progress, reason: str, now: float) -> Progress:
        """What follows when something goes wrong."""
        assert progress.stage not in ENDED
        if progress.stage in BACK:
            return self._go(
                progress, Stage.STUCK, now, reason=f"{progress.reason} The rollback failed: {reason}"
            )
        progress = replace(progress, reason=reason)
        if progress.old == self.old:
            none = dict.fromkeys(self.new, 0)
            return self._go(progress, Stage.SHRINKING_BACK, now, share=0.0, new=none)
        # what is left of the old fleet takes as many requests as it always has
        back = min(progress.share, 1 - _part(progress.old, self.old))
        return self._grow_back(replace(progress, share=back), now)

    def restarted(self, progress: Progress, now: float) -> Progress:
        """What follows when nobody has watched for some time: a bake begins anew."""
        return self._go(progress, progress.stage, now) if progress.stage in WAITING else progress

    def left_s(self, progress: Progress, now: float) -> float:
        """How long a stage still waits; never longer than its whole time, whatever has become of the clock."""
        return min(progress.until - now, self._wait_s(progress.stage))

    def is_overdue(self, progress: Progress, now: float) -> bool:
        """Whether the update has taken longer than it may. What waits to end the old fleet has come about."""
        timeout_s = self.policy.timeout_s
        is_open = progress.stage in (Stage.PROVISIONING, Stage.BAKING, Stage.SHRINKING)
        return bool(timeout_s) and is_open and now > progress.began + timeout_s

    def _go(
        self,
        progress: Progress,
        stage: Stage,
        now: float,
        *,
        step: int | None = None,
        share: float | None = None,
        old: Mapping[str, int] | None = None,
        new: Mapping[str, int] | None = None,
        reason: str | None = None,
    ) -> Progress:
        return Progress(
            stage,
            progress.step if step is None else step,
            progress.share if share is None else share,
            progress.old if old is None else old,
            progress.new if new is None else new,
            progress.began,
            now,
            now + self._wait_s(stage) if stage in WAITING else 0.0,
            progress.reason if reason is None else reason,
        )

    def _wait_s(self, stage: Stage) -> int:
        return self.policy.wait_s if stage is Stage.BAKING else self.policy.termination_wait_s

    def _batch(self, step: int) -> Mapping[str, int]:
        """The instances of the new fleet in a step."""
        return self.policy.batches(self.new)[step] if self.policy.strategy is Strategy.ROLLING else self.new

    def _rest(self, share: float) -> Mapping[str, int]:
        """The instances that the old fleet needs when the new one takes a share."""
        return {name: ceil(count * (1 - share) - _TOLERANCE) for name, count in self.old.items()}

    def _grow_back(self, progress: Progress, now: float) -> Progress:
        """Have another batch of the old fleet."""
        size = self.policy.rollback_size
        old = {
            name: count if size is None else min(count, progress.old[name] + size.batch(count))
            for name, count in self.old.items()
        }
        return self._go(progress, Stage.GROWING_BACK, now, old=old)

    def _left(self, progress: Progress) -> tuple[float, Mapping[str, int]]:
        """The share and the instances that the new fleet keeps when the old one has grown."""
        share = min(progress.share, 1 - _part(progress.old, self.old))
        if share < _TOLERANCE:
            return 0.0, dict.fromkeys(self.new, 0)
        new = {
            name: min(progress.new[name], ceil(count * share - _TOLERANCE))
            for name, count in self.new.items()
        }
        return share, new


def _part(counts: Mapping[str, int], of: Mapping[str, int]) -> float:
    """Which part of a fleet is there; all of one without instances, as an asynchronous endpoint may have."""
    total = sum(of.values())
    return sum(counts.values()) / total if total else 1.0
