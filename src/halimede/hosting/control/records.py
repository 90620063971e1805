"""What is known of an endpoint, as it is kept: its state, the fleet that serves and the one that is to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from halimede.hosting.control.deployments.plan import Plan
from halimede.hosting.control.deployments.policy import Policy
from halimede.hosting.control.deployments.progress import Progress
from halimede.hosting.identity import EndpointId
from halimede.hosting.specs import AsyncSpec, DataCapture, Variant


class Status(StrEnum):
    """States of an endpoint, as SageMaker calls them."""

    CREATING = "Creating"
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    SYSTEM_UPDATING = "SystemUpdating"
    ROLLING_BACK = "RollingBack"
    UPDATE_ROLLBACK_FAILED = "UpdateRollbackFailed"
    DELETING = "Deleting"
    FAILED = "Failed"


SETTLED = (Status.IN_SERVICE, Status.UPDATE_ROLLBACK_FAILED, Status.FAILED)
"""States that stay until somebody asks for something."""


@dataclass(slots=True)
class FleetRecord:
    """The instances of an endpoint that belong together: what they are made from, and how many there are to be.

    Attributes:
        id: its name; an update makes a fleet with another one.
        config_name: the endpoint configuration's name.
        config: the endpoint configuration, as it was when the fleet was asked for.
        models: model's name → the model, as it was then.
        weights: variant → its share of the traffic now.
        counts: variant → how many instances it is to have.
    """

    id: str
    config_name: str
    config: dict[str, Any]
    models: dict[str, dict[str, Any]]
    weights: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def variants(self) -> list[Variant]:
        """The variants, as they were asked for; those that shadow others last."""
        capture = DataCapture.from_document(self.config.get("DataCaptureConfig") or {})
        return [
            Variant.from_documents(variant, self.models[variant["ModelName"]], capture)
            for variant in variants_of(self.config)
        ]

    @property
    def asynchronous(self) -> AsyncSpec | None:
        """What makes the endpoint asynchronous; None if it answers at once."""
        document = self.config.get("AsyncInferenceConfig")
        return AsyncSpec.from_document(document) if document else None

    def shadows(self) -> dict[str, str]:
        """Shadow variant → the variant whose requests it gets copies of."""
        [first, *_] = self.config["ProductionVariants"]
        shadows = self.config.get("ShadowProductionVariants", ())
        return {shadow["VariantName"]: first["VariantName"] for shadow in shadows}

    def instance_types(self) -> dict[str, str]:
        """Variant → the type of its instances."""
        return {variant["VariantName"]: variant["InstanceType"] for variant in variants_of(self.config)}

    @classmethod
    def of(
        cls, fleet_id: str, config_name: str, config: dict[str, Any], models: dict[str, dict[str, Any]]
    ) -> "FleetRecord":
        """A fleet as its configuration says."""
        record = cls(fleet_id, config_name, config, models)
        for variant in record.variants():
            record.weights[variant.name] = variant.weight
            record.counts[variant.name] = variant.count
        return record

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "FleetRecord":
        """The fleet that was kept."""
        # earlier versions noted `is_update`, since only updates were counted by their configuration
        return cls(**{name: value for name, value in document.items() if name != "is_update"})


def variants_of(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The variants of an endpoint configuration; those that shadow others last."""
    return [*config["ProductionVariants"], *config.get("ShadowProductionVariants", ())]


@dataclass(slots=True)
class EndpointRecord:
    """An endpoint. Times are seconds since 1970.

    Attributes:
        name: its name.
        arn: its ARN.
        account, region: where its name holds.
        status: its state.
        reason: why it failed, "" if it did not; of an endpoint in service, why its last update did not come about.
        created, modified: when.
        current: the fleet that serves; None until there is one.
        pending: the fleet that is being brought up to take its place.
        mixed: a fleet that serves beside the current one since an update of the endpoint failed and could not be rolled
            back (`UpdateRollbackFailed`); None if there is none.
        progress: how far the update has come by which the pending fleet takes the place; None if there is none.
        deployment: the `DeploymentConfig` of the request that asked for the last deployment, None if it had none.
    """

    name: str
    arn: str
    account: str
    region: str
    status: Status
    created: float
    modified: float
    reason: str = ""
    current: FleetRecord | None = None
    pending: FleetRecord | None = None
    deployment: dict[str, Any] | None = None
    mixed: FleetRecord | None = None
    progress: Progress | None = None

    @property
    def id(self) -> EndpointId:
        """Which endpoint it is."""
        return EndpointId(self.account, self.region, self.name)

    @property
    def fleets(self) -> list[FleetRecord]:
        """Those that there are."""
        return [fleet for fleet in (self.current, self.mixed, self.pending) if fleet is not None]

    @property
    def settled_status(self) -> Status:
        """The state in which it is when nothing is done to it and it serves."""
        return Status.IN_SERVICE if self.mixed is None else Status.UPDATE_ROLLBACK_FAILED

    @property
    def plan(self) -> Plan:
        """What the update does that is under way."""
        assert self.current is not None
        assert self.pending is not None
        return Plan(Policy.of(self.deployment), self.current.counts, self.pending.counts)

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "EndpointRecord":
        """The endpoint that was kept."""
        fleets = {
            name: FleetRecord.from_document(document[name]) if document.get(name) else None
            for name in ("current", "pending", "mixed")
        }
        progress = document.get("progress")
        return cls(
            **{
                **document,
                "status": Status(document["status"]),
                **fleets,
                "progress": Progress.from_document(progress) if progress else None,
            }
        )
