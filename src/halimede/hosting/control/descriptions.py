"""Endpoints as Describe and List answer them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.capture.configuration import describe_capture
from halimede.hosting.control.deployments.progress import Progress, Stage
from halimede.hosting.control.fleets import Fleets
from halimede.hosting.control.records import EndpointRecord, FleetRecord, Status

_MAX_REASON = 1024
"""Characters of a FailureReason (SageMaker's limit)."""

_NO_ROOM = "InsufficientInstanceCapacity"
"""What EC2 calls a want of machines."""

_DEPLOYING = (Status.CREATING, Status.UPDATING, Status.ROLLING_BACK)
"""States in which a pending fleet is described."""


def endpoint_summary(record: EndpointRecord) -> dict[str, Any]:
    """The endpoint in a list."""
    return {
        "EndpointName": record.name,
        "EndpointArn": record.arn,
        "CreationTime": _time(record.created),
        "LastModifiedTime": _time(record.modified),
        "EndpointStatus": str(record.status),
    }


def describe_endpoint(
    record: EndpointRecord, fleets: Fleets, *, is_capture_stopped: bool = False
) -> dict[str, Any]:
    """The endpoint alone.

    Args:
        record: what is known of it.
        fleets: its instances.
        is_capture_stopped: nothing is captured for want of room on the disk.
    """
    fleet = record.current or record.pending
    document = endpoint_summary(record)
    if fleet is not None:
        document["EndpointConfigName"] = fleet.config_name
        if "AsyncInferenceConfig" in fleet.config:
            document["AsyncInferenceConfig"] = fleet.config["AsyncInferenceConfig"]
        if "DataCaptureConfig" in fleet.config:
            document["DataCaptureConfig"] = describe_capture(
                fleet.config["DataCaptureConfig"], is_stopped=is_capture_stopped
            )
    if record.current is not None:
        statuses = _Statuses(record, fleets, is_pending=False)
        document |= _variants(record.current, fleets.instances(), statuses)
        if record.mixed is not None and fleets.mixed is not None:
            _add_mixed(document, record.mixed, fleets.mixed.instances())
    if record.deployment is not None:
        document["LastDeploymentConfig"] = record.deployment
    if record.reason:
        document["FailureReason"] = record.reason[:_MAX_REASON]
    if record.status in _DEPLOYING and record.pending is not None:
        progress = record.progress
        statuses = _Statuses(record, fleets, is_pending=True)
        document["PendingDeploymentSummary"] = {
            "EndpointConfigName": record.pending.config_name,
            **_variants(record.pending, fleets.pending_instances(), statuses),
            "StartTime": _time(record.modified if progress is None else progress.began),
        }
    return document


def _variants(fleet: FleetRecord, instances: Mapping[str, int], statuses: "_Statuses") -> dict[str, Any]:
    """The variants of a fleet, and those that shadow them."""
    summaries = {
        variant.name: {
            "VariantName": variant.name,
            "DeployedImages": [
                {"SpecifiedImage": container.image, "ResolvedImage": container.image}
                for container in variant.containers
            ],
            "CurrentWeight": fleet.weights[variant.name],
            "DesiredWeight": fleet.weights[variant.name],
            "CurrentInstanceCount": instances.get(variant.name, 0),
            "DesiredInstanceCount": fleet.counts[variant.name],
            **statuses.of(variant.name),
        }
        for variant in fleet.variants()
    }
    shadows = fleet.shadows()
    document = {"ProductionVariants": [each for name, each in summaries.items() if name not in shadows]}
    if shadows:
        document["ShadowProductionVariants"] = [summaries[name] for name in shadows]
    return document


def _add_mixed(document: dict[str, Any], mixed: FleetRecord, instances: Mapping[str, int]) -> None:
    """Count the instances of another configuration, which serve beside those that a document describes."""
    containers = {variant.name: variant.containers for variant in mixed.variants()}
    for each in (*document["ProductionVariants"], *document.get("ShadowProductionVariants", ())):
        name = each["VariantName"]
        if name in containers:
            each["CurrentInstanceCount"] += instances.get(name, 0)
            each["DesiredInstanceCount"] += mixed.counts[name]
            known = [image["SpecifiedImage"] for image in each["DeployedImages"]]
            each["DeployedImages"] += [
                {"SpecifiedImage": container.image, "ResolvedImage": container.image}
                for container in containers[name]
                if container.image not in known
            ]


class _Statuses:
    """What is being done to the variants of the fleet that serves, or of the one that is pending."""

    def __init__(self, record: EndpointRecord, fleets: Fleets, *, is_pending: bool) -> None:
        self._record = record
        self._fleets = fleets
        self._is_pending = is_pending
        self._waiting = fleets.waiting()

    def of(self, variant: str) -> dict[str, Any]:
        """The status of a variant; nothing if nothing is done to it."""
        record, progress = self._record, self._record.progress
        status, text = "", ""
        if progress is not None:
            status, text = self._stage(progress)
        if why := self._waiting.get(variant):
            status = "Creating" if record.status is Status.CREATING else "Updating"
            text = f"{_NO_ROOM}: {why}"
        if not status:
            return {}
        began = record.modified if progress is None else progress.since
        shown = {"Status": status, "StartTime": _time(began)}
        return {"VariantStatus": [{**shown, "StatusMessage": text[:_MAX_REASON]} if text else shown]}

    def _stage(self, progress: Progress) -> tuple[str, str]:
        """What a stage of an update does to a variant, and how far it has come."""
        share = f"{progress.share * 100:.4g} % of the requests"
        if not self._is_pending:
            if progress.stage is Stage.SHRINKING:
                return "Deleting", "a batch of instances is replaced"
            if progress.stage is Stage.GROWING_BACK:
                return "Updating", "a batch of instances is started again"
            return "", ""
        match progress.stage:
            case Stage.BAKING:
                return "Baking", f"{share}, until {_clock(progress.until)}"
            case Stage.TERMINATION_WAIT:
                return "Baking", f"{share}; the old fleet is kept until {_clock(progress.until)}"
            case Stage.SHRINKING:
                return "Updating", share
            case Stage.GROWING_BACK | Stage.SHRINKING_BACK:
                return "Deleting", share
        is_up = self._fleets.pending_instances() == progress.new
        return "ActivatingTraffic" if is_up else "Creating", share


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _clock(seconds: float) -> str:
    return f"{_time(seconds):%Y-%m-%dT%H:%M:%SZ}"
