"""What is known of an experiment, as it is kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from halimede.hosting.identity import EndpointId, Scope


class Status(StrEnum):
    """States of an experiment, as SageMaker calls them."""

    CREATING = "Creating"
    CREATED = "Created"
    STARTING = "Starting"
    RUNNING = "Running"
    UPDATING = "Updating"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"


OVER = (Status.COMPLETED, Status.CANCELLED)
"""States that stay."""


@dataclass(slots=True)
class Deployment:
    """A configuration that the endpoint is to get.

    Attributes:
        config_name: its name; it has been made.
        then: the experiment's state when the endpoint has it.
        asked: the endpoint has been told.
    """

    config_name: str
    then: Status
    asked: bool = False


@dataclass(slots=True)
class ExperimentRecord:
    """An experiment. Times are seconds since 1970.

    Attributes:
        name: its name.
        account, region: where its name holds.
        request: what was asked for, with later updates.
        start, end: its schedule.
        created, modified, completed: when; the last 0 until it is over.
        status: its state.
        reason: why it is in that.
        config_name: the configuration that the endpoint has while it runs.
        deployment: what the endpoint is to become; None for nothing.
        before: while it is updated: `request` and `config_name` as they were.
        removed: variants that are taken away when it stops.
        capture: the endpoint's `DataCaptureConfig` before the experiment; None for none.
    """

    name: str
    account: str
    region: str
    request: dict[str, Any]
    start: float
    end: float
    created: float
    modified: float
    completed: float = 0.0
    status: Status = Status.CREATING
    reason: str = ""
    config_name: str = ""
    deployment: Deployment | None = None
    before: dict[str, Any] | None = None
    removed: list[str] = field(default_factory=list)
    capture: dict[str, Any] | None = None

    @property
    def scope(self) -> Scope:
        """Where its name holds."""
        return Scope(self.account, self.region)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.scope.arn("inference-experiment", self.name)

    @property
    def endpoint(self) -> EndpointId:
        """Where it runs."""
        return EndpointId(self.account, self.region, self.request["EndpointName"])

    @property
    def production(self) -> str:
        """The name of the production variant."""
        name: str = self.request["ShadowModeConfig"]["SourceModelVariantName"]
        return name

    @property
    def shadow(self) -> str:
        """The name of the shadow variant."""
        name: str = self.request["ShadowModeConfig"]["ShadowModelVariants"][0]["ShadowModelVariantName"]
        return name

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ExperimentRecord":
        """The experiment that was kept."""
        pending = document["deployment"]
        deployment = Deployment(**{**pending, "then": Status(pending["then"])}) if pending else None
        return cls(**{**document, "status": Status(document["status"]), "deployment": deployment})
