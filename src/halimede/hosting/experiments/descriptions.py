"""Experiments as Describe and List answer them."""

from datetime import UTC, datetime
from typing import Any

from halimede.hosting.deployed import Deployed
from halimede.hosting.experiments.records import OVER, ExperimentRecord, Status

_PASSED_ON = ("Description", "RoleArn", "DataStorageConfig", "ShadowModeConfig", "KmsKey")
_MAX_REASON = 1024


def experiment_summary(record: ExperimentRecord) -> dict[str, Any]:
    """The experiment in a list."""
    document = {
        "Name": record.name,
        "Type": record.request["Type"],
        "Schedule": {"StartTime": _time(record.start), "EndTime": _time(record.end)},
        "Status": str(record.status),
        "CreationTime": _time(record.created),
        "LastModifiedTime": _time(record.modified),
        "RoleArn": record.request["RoleArn"],
    }
    if record.reason:
        document["StatusReason"] = record.reason[:_MAX_REASON]
    if record.completed:
        document["CompletionTime"] = _time(record.completed)
    if "Description" in record.request:
        document["Description"] = record.request["Description"]
    return document


def describe_experiment(record: ExperimentRecord, deployed: Deployed | None) -> dict[str, Any]:
    """The experiment alone; `deployed` is its endpoint, None if that is gone."""
    request = record.request
    endpoint = {"EndpointName": request["EndpointName"]}
    if deployed is not None:
        endpoint |= {"EndpointConfigName": deployed.config_name, "EndpointStatus": deployed.status}
        if deployed.reason:
            endpoint["FailureReason"] = deployed.reason[:_MAX_REASON]
    return {
        **experiment_summary(record),
        **{member: request[member] for member in _PASSED_ON if member in request},
        "Arn": record.arn,
        "EndpointMetadata": endpoint,
        "ModelVariants": [
            {**variant, "Status": _variant_status(record, variant["VariantName"])}
            for variant in request["ModelVariants"]
        ],
    }


def _variant_status(record: ExperimentRecord, variant: str) -> str:
    """What becomes of a variant."""
    if variant in record.removed:
        return "Deleted" if record.status in OVER else "Deleting"
    if record.status is Status.UPDATING:
        return "Updating"
    if variant == record.shadow:
        if record.status in (Status.CREATING, Status.CREATED, Status.STARTING):
            return "Creating"
    elif record.status is Status.STARTING:
        return "Updating"
    return "InService"


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
