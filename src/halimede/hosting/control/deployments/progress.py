"""How far an update has come, as it is kept: after a restart the host goes on from there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """What an update does.

    Forward, for each step, or each batch of a rolling update:
    PROVISIONING ──► BAKING ──► (rolling) SHRINKING ──► PROVISIONING … BAKING ──► TERMINATION_WAIT ──► DONE

    Back, once for blue/green and batch by batch for rolling:
    any of these ──► GROWING_BACK ──► SHRINKING_BACK ──► GROWING_BACK … SHRINKING_BACK ──► ROLLED_BACK
                     GROWING_BACK ──► STUCK
    """

    PROVISIONING = "Provisioning"
    BAKING = "Baking"
    SHRINKING = "Shrinking"
    TERMINATION_WAIT = "TerminationWait"
    GROWING_BACK = "GrowingBack"
    SHRINKING_BACK = "ShrinkingBack"
    DONE = "Done"
    ROLLED_BACK = "RolledBack"
    STUCK = "Stuck"


WAITING = (Stage.BAKING, Stage.TERMINATION_WAIT)
"""Stages that end by the clock."""

BACK = (Stage.GROWING_BACK, Stage.SHRINKING_BACK)
"""Stages of a rollback."""

ENDED = (Stage.DONE, Stage.ROLLED_BACK, Stage.STUCK)
"""After these nothing follows."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an update has come. Times are in seconds since 1970.

    Attributes:
        stage: what it does.
        step: how many shifts of requests, or batches, are behind it.
        share: the part of the requests that the new fleet gets.
        old: variant → how many instances of the fleet before it are to be there.
        new: variant → how many instances of the new fleet are to be there.
        began: when it was asked for.
        since: when the stage began.
        until: when the stage ends, if it waits; otherwise 0.
        reason: why it is rolled back; "" while it goes forward.
    """

    stage: Stage
    step: int
    share: float
    old: Mapping[str, int]
    new: Mapping[str, int]
    began: float
    since: float
    until: float = 0.0
    reason: str = field(default="")

    def __str__(self) -> str:
        """What is done now, for a log: "Baking, 10 % of the requests go to the new fleet"."""
        return f"{self.stage}, {self.share * 100:.4g} % of the requests go to the new fleet"

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Progress":
        """What was kept, by `asdict`."""
        return cls(**{**document, "stage": Stage(document["stage"])})
