"""What is known of an endpoint, as it is kept: its state, the fleet that serves and the one that is to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from halimede.hosting.identity import EndpointId
from halimede.hosting.specs import AsyncSpec, Variant


class Status(StrEnum):
    """States of an endpoint, as SageMaker calls them."""

    CREATING = "Creating"
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    SYSTEM_UPDATING = "SystemUpdating"
    ROLLING_BACK = "RollingBack"
    DELETING = "Deleting"
    FAILED = "Failed"


SETTLED = (Status.IN_SERVICE, Status.FAILED)
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
        """The variants, as they were asked for."""
        return [
            Variant.from_documents(variant, self.models[variant["ModelName"]])
            for variant in self.config["ProductionVariants"]
        ]

    @property
    def asynchronous(self) -> AsyncSpec | None:
        """What makes the endpoint asynchronous; None if it answers at once."""
        document = self.config.get("AsyncInferenceConfig")
        return AsyncSpec.from_document(document) if document else None

    def instance_types(self) -> dict[str, str]:
        """Variant → the type of its instances."""
        return {
            variant["VariantName"]: variant["InstanceType"] for variant in self.config["ProductionVariants"]
        }

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

    @property
    def id(self) -> EndpointId:
        """Which endpoint it is."""
        return EndpointId(self.account, self.region, self.name)

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "EndpointRecord":
        """The endpoint that was kept."""
        fleets = {
            name: FleetRecord(**document[name]) if document[name] else None for name in ("current", "pending")
        }
        return cls(**{**document, "status": Status(document["status"]), **fleets})
