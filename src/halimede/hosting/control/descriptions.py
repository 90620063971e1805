"""Endpoints as Describe and List answer them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.control.records import EndpointRecord, FleetRecord, Status

_MAX_REASON = 1024
"""Characters of a FailureReason (SageMaker's limit)."""


def endpoint_summary(record: EndpointRecord) -> dict[str, Any]:
    """The endpoint in a list."""
    return {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "CreationTime": datetime.fromtimestamp(record.created, UTC),
        "LastModifiedTime": datetime.fromtimestamp(record.modified, UTC),
        "EndpointStatus": str(record.status),
    }


def describe_endpoint(record: EndpointRecord, instances: Mapping[str, int]) -> dict[str, Any]:
    """The endpoint alone.

    Args:
        record: what is known of it.
        instances: variant → how many instances take requests now.
    """
    fleet = record.current or record.pending
    document = endpoint_summary(record)
    if fleet is not None:
        document["EndpointConfigName"] = fleet.config_name
        if record.current is not None:
            document["ProductionVariants"] = _variants(fleet, instances)
    if record.deployment is not None:
        document["LastDeploymentConfig"] = record.deployment
    if record.reason:
        document["FailureReason"] = record.reason[:_MAX_REASON]
    if record.status is Status.UPDATING and record.pending is not None:
        document["PendingDeploymentSummary"] = {
            "EndpointConfigName": record.pending.config_name,
            "ProductionVariants": _variants(record.pending, {}),
            "StartTime": datetime.fromtimestamp(record.modified, UTC),
        }
    return document


def _variants(fleet: FleetRecord, instances: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "VariantName": variant.name,
            "DeployedImages": [
                {"SpecifiedImage": variant.container.image, "ResolvedImage": variant.container.image}
            ],
            "CurrentWeight": fleet.weights[variant.name],
            "DesiredWeight": fleet.weights[variant.name],
            "CurrentInstanceCount": instances.get(variant.name, 0),
            "DesiredInstanceCount": fleet.counts[variant.name],
        }
        for variant in fleet.variants()
    ]
