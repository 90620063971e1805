"""What is known of a transform job, as it is kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from halimede.hosting.identity import Scope


class Status(StrEnum):
    """States of a job, as SageMaker calls them.

    InProgress ──► Completed | Failed
    InProgress ──► Stopping ──► Stopped
    """

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


SETTLED = (Status.COMPLETED, Status.FAILED, Status.STOPPED)
"""States that stay."""


@dataclass(slots=True)
class JobRecord:
    """A job. Times are seconds since 1970, 0 for not yet.

    Attributes:
        name, account, region: its name, and where that holds.
        arn: its ARN.
        status: its state.
        request: the request that asked for it.
        model: the model, as it was then.
        fleet: the id of its instances' fleet.
        created, modified, started, ended: when; it starts when its instances do, and ends with them.
        outcome: the state that it will have once its instances have ended; "" while it is under way.
        reason: why it failed.
    """

    name: str
    account: str
    region: str
    arn: str
    status: Status
    request: dict[str, Any]
    model: dict[str, Any]
    fleet: str
    created: float
    modified: float
    started: float = 0.0
    ended: float = 0.0
    outcome: str = ""
    reason: str = ""

    @property
    def scope(self) -> Scope:
        """Where its name holds."""
        return Scope(self.account, self.region)

    @property
    def is_settled(self) -> bool:
        """Whether nothing will become of it any more."""
        return self.status in SETTLED

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "JobRecord":
        """The job that was kept."""
        return cls(**{**document, "status": Status(document["status"])})
