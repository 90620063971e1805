"""Endpoints as Describe and List answer them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.control.records import EndpointRecord, FleetRecord, Status

_MAX_REASON = 1024
"""Characters of a FailureReason (SageMaker's limit)."""

_NO_ROOM = "InsufficientInstanceCapacity"
"""What EC2 calls a want of machines."""


def endpoint_summary(record: EndpointRecord) -> dict[str, Any]:
    """The endpoint in a list."""
    return {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "CreationTime": datetime.fromtimestamp(record.created, UTC),
        "LastModifiedTime": datetime.fromtimestamp(record.modified, UTC),
        "EndpointStatus": str(record.status),
    }


def describe_endpoint(
    record: EndpointRecord, instances: Mapping[str, int], waiting: Mapping[str, str]
) -> dict[str, Any]:
    """The endpoint alone.

    Args:
        record: what is known of it.
        instances: variant → how many instances take requests now.
        waiting: variant → why there is no room yet for one of its instances.
    """
    fleet = record.current or record.pending
    document = endpoint_summary(record)
    if fleet is not None:
        document["EndpointConfigName"] = fleet.config_name
        if record.current is not None:
            document["ProductionVariants"] = _variants(fleet, instances, record, waiting)
    if record.deployment is not None:
        document["LastDeploymentConfig"] = record.deployment
    if record.reason:
        document["FailureReason"] = record.reason[:_MAX_REASON]
    if record.status in (Status.CREATING, Status.UPDATING) and record.pending is not None:
        document["PendingDeploymentSummary"] = {
            "EndpointConfigName": record.pending.config_name,
            "ProductionVariants": _variants(record.pending, {}, record, waiting),
            "StartTime": datetime.fromtimestamp(record.modified, UTC),
        }
    return document


def _variants(
    fleet: FleetRecord, instances: Mapping[str, int], record: EndpointRecord, waiting: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "VariantName": variant.name,
            "DeployedImages": [
                {"SpecifiedImage": container.image, "ResolvedImage": container.image}
                for container in variant.containers
            ],
            "CurrentWeight": fleet.weights[variant.name],
            "DesiredWeight": fleet.weights[variant.name],
            "CurrentInstanceCount": instances.get(variant.name, 0),
            "DesiredInstanceCount": fleet.counts[variant.name],
            **_status(variant.name, record, waiting),
        }
        for variant in fleet.variants()
    ]


def _status(variant: str, record: EndpointRecord, waiting: Mapping[str, str]) -> dict[str, Any]:
    """What is being done to a variant, if it waits for something."""
    why = waiting.get(variant)
    if not why:
        return {}
    status = {
        "Status": "Creating" if record.status is Status.CREATING else "Updating",
        "StatusMessage": f"{_NO_ROOM}: {why}"[:_MAX_REASON],
        "StartTime": datetime.fromtimestamp(record.modified, UTC),
    }
    return {"VariantStatus": [status]}
