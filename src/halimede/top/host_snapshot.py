"""What a host has counted so far, as its console tells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class VariantCounts:
    """What was counted of a variant. Counts and sums only grow while the host runs.

    Attributes:
        sums: metric of `AWS/SageMaker` → the sum of its values.
        counts: metric → how many values those were.
        latencies: microseconds that instances took → how many requests took about so long.
        in_flight: requests that its instances have not answered.
        copies: of a shadow variant: copies that have not come to their end; None if the host does not say.
    """

    sums: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[float, int] = field(default_factory=dict)
    in_flight: int = 0
    copies: int | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a fleet.

    Attributes:
        name: its name.
        config: the endpoint configuration of its fleet.
        shadow: it gets copies of another variant's requests.
        share: the part of the endpoint's requests that its fleet's instances of it take; None for a shadow.
        instances, wanted: how many instances it has, and is to have.
        stage: what a deployment does to it, such as `Baking`; "" for nothing.
        message: how far that has come.
        since: when that began, in seconds since the epoch; None if nothing is done to it.
    """

    name: str
    config: str
    shadow: bool
    share: float | None
    instances: int
    wanted: int
    stage: str = ""
    message: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint.

    Attributes:
        name: its name.
        status: such as `InService`.
        reason: why it failed; "" if it has not.
        variants: those that serve, and shadows.
        deployed: those of the configuration that is being deployed; none if none is.
        counted: variant → what was counted of it.
        backlog: requests that an asynchronous endpoint has not answered; None of others.
    """

    name: str
    status: str
    reason: str = ""
    variants: Sequence[Variant] = ()
    deployed: Sequence[Variant] = ()
    counted: Mapping[str, VariantCounts] = field(default_factory=dict)
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance.

    Attributes:
        id: its name.
        endpoint, variant: what it serves.
        node: the machine of a cluster; "" for the host's own.
        pid: its process.
        in_service: it takes requests.
        in_flight: requests that it has not answered.
        models: how many it holds, if it serves many.
        cpu: per cent of one processor; None as long as the host has not measured it.
        memory, disk: per cent of what there is; None likewise.
    """

    id: str
    endpoint: str
    variant: str
    node: str
    pid: int
    in_service: bool
    in_flight: int
    models: int | None
    cpu: float | None
    memory: float | None
    disk: float | None


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """A host at a time, as one account and region sees it.

    Attributes:
        time, started: in seconds since the epoch.
        version: the host's.
        account, region: whose endpoints are shown.
        endpoints: by name.
        instances: of these endpoints.
        alarms: those in alarm: name and reason.
    """

    time: float
    started: float
    version: str
    account: str
    region: str
    endpoints: Mapping[str, Endpoint]
    instances: Sequence[Instance]
    alarms: Sequence[tuple[str, str]]


def of_host(document: Mapping[str, Any]) -> HostSnapshot:
    """The snapshot in a document of `/console/snapshot`.

    Raises:
        KeyError, TypeError, ValueError: it has another form.
    """
    host = document["host"]
    return HostSnapshot(
        float(document["time"]),
        float(document["started"]),
        host["version"],
        host["account"],
        host["region"],
        {each["EndpointName"]: _endpoint(each) for each in document["endpoints"]},
        [_instance(each) for each in document["instances"]],
        [
            (each["AlarmName"], each.get("StateReason", ""))
            for each in document["alarms"]
            if each["StateValue"] == "ALARM"
        ],
    )


def _endpoint(document: Mapping[str, Any]) -> Endpoint:
    config, shares = document.get("EndpointConfigName", ""), document["Shares"]
    pending = document.get("PendingDeploymentSummary", {})
    pending_config = pending.get("EndpointConfigName", "")
    return Endpoint(
        document["EndpointName"],
        document["EndpointStatus"],
        document.get("FailureReason", ""),
        [*_variants(document, config, shares.get(config, 1.0))],
        [*_variants(pending, pending_config, shares.get(pending_config, 0.0))],
        {each["variant"]: _counts(each) for each in document["Figures"]},
        document.get("Backlog"),
    )


def _variants(document: Mapping[str, Any], config: str, fleet: float) -> Iterator[Variant]:
    """The variants of a fleet that takes that part of the endpoint's requests."""
    production = document.get("ProductionVariants", ())
    whole = sum(each["CurrentWeight"] for each in production)
    for each in production:
        part = fleet * each["CurrentWeight"] / whole if whole else 0.0
        yield _variant(each, config, shadow=False, share=part)
    for each in document.get("ShadowProductionVariants", ()):
        yield _variant(each, config, shadow=True, share=None)


def _variant(document: Mapping[str, Any], config: str, *, shadow: bool, share: float | None) -> Variant:
    [status] = document.get("VariantStatus", [{}])[:1]
    since = status.get("StartTime")
    return Variant(
        document["VariantName"],
        config,
        shadow,
        share,
        document["CurrentInstanceCount"],
        document["DesiredInstanceCount"],
        status.get("Status", ""),
        status.get("StatusMessage", ""),
        None if since is None else datetime.fromisoformat(since).timestamp(),
    )


def _counts(document: Mapping[str, Any]) -> VariantCounts:
    latencies = {float(value): int(count) for value, count in document.get("latencies", ())}
    return VariantCounts(
        document["sums"], document["counts"], latencies, document["in_flight"], document.get("copies")
    )


def _instance(document: Mapping[str, Any]) -> Instance:
    return Instance(
        document["id"],
        document["endpoint"],
        document["variant"],
        document["node"],
        document["pid"],
        document["takes_requests"],
        document["in_flight"],
        document["models"],
        document["cpu"],
        document["memory"],
        document["disk"],
    )
