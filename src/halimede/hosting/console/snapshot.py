"""What the host is doing for a caller, as one document, of which the console makes rates.

    {"time", "started": seconds since the epoch, "host": {"version", "account", "region"},
     "endpoints": [what DescribeEndpoint says, and "Figures": [VARIANT, ...],
                   "Shares": {configuration: which part of the requests its fleet takes},
                   "Backlog": requests of an asynchronous endpoint that have not been answered, or null],
     "instances": [{"id", "endpoint", "variant", "node", "address", "pid", "takes_requests", "in_flight",
                    "models": how many it holds or null, "cpu", "memory", "disk": per cent or null}],
     "alarms": what DescribeAlarms says of alarms on metrics and composite ones,
     "activities": what DescribeScalingActivities says, the newest first}

A VARIANT is {"variant", "shadow", "instances", "in_flight", "counts": metric → count, "sums": metric → sum,
"latencies": [[latency, count], ...], "copies"}, with the metrics of `AWS/SageMaker`. Latencies are in microseconds;
those of "latencies" are of `ModelLatency`, to one per cent. Counts and sums only grow while the host runs. "copies"
tells of a shadow variant how many copies have not come to their end; null of others, and where other processes have
them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import halimede
from halimede.hosting.access.keys import Key
from halimede.hosting.api.services import Operation
from halimede.hosting.control.controller import Controller
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.metering.metering import Metering
from halimede.hosting.routing.table import EndpointRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.substrates.base import RunningInstance

Document = dict[str, Any]

_ACTIVITIES: Final = 50


@dataclass(frozen=True, slots=True)
class Sources:
    """What snapshots are made of.

    Attributes:
        controller: the endpoints.
        table: the routes of their requests.
        metering: what is measured of them.
        instances: gives all that run.
        backlogs: asynchronous endpoint → how many of its requests have not been answered.
        copies: gives how many copies for a shadow variant have not come to their end; None if other processes have
            them.
        alarms: DescribeAlarms.
        activities: DescribeScalingActivities.
    """

    controller: Controller
    table: RoutingTable
    metering: Metering
    instances: Callable[[], Iterable[RunningInstance]]
    backlogs: Callable[[], Mapping[EndpointId, int]]
    copies: Callable[[VariantRoute], int] | None
    alarms: Operation
    activities: Operation


class HostSnapshots:
    """Makes them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._started = time.time()

    async def take(self, caller: Caller, key: Key | None) -> Document:
        """The document, of what the caller's key lets it see.

        Raises:
            ApiError: the key lets it see no endpoints.
        """
        if key is not None:
            key.check("sagemaker:ListEndpoints")
        sources = self._sources
        sources.metering.flush()
        backlogs = sources.backlogs()
        routes = {route.name: route for route in sources.table.routes() if route.id.scope == caller.scope}
        endpoints = [
            {
                **described,
                "Shares": _shares(routes.get(described["EndpointName"])),
                "Backlog": _backlog(described, caller, backlogs),
                "Figures": self._figures(routes.get(described["EndpointName"])),
            }
            for described in map(dict, sources.controller.describe_all(caller))
            if _may(key, "sagemaker:DescribeEndpoint", described["EndpointName"])
        ]
        seen = {each["EndpointName"] for each in endpoints}
        return {
            "time": time.time(),
            "started": self._started,
            "host": {"version": halimede.__version__, "account": caller.account, "region": caller.region},
            "endpoints": endpoints,
            "instances": [each for each in self._instances(caller, routes) if each["endpoint"] in seen],
            "alarms": await self._alarms(caller, key),
            "activities": await self._activities(caller, key),
        }

    def _figures(self, route: EndpointRoute | None) -> list[Document]:
        if route is None:
            return []
        serving = {name for variants in route.fleets() for name in variants}
        return [
            {
                "variant": name,
                "shadow": name not in serving,
                "instances": sum(len(each.targets) for each in variants),
                "in_flight": sum(target.outstanding for each in variants for target in each.targets),
                "counts": dict(meter.counts),
                "sums": dict(meter.sums),
                "latencies": [
                    (round(value, 3), round(count)) for value, count in meter.latencies.histogram()
                ],
                "copies": None if name in serving else self._copies(variants),
            }
            for name, variants in route.by_name().items()
            for meter in (self._sources.metering.meter(route.id, name),)
        ]

    def _copies(self, variants: Iterable[VariantRoute]) -> int | None:
        count = self._sources.copies
        return None if count is None else sum(map(count, variants))

    def _instances(self, caller: Caller, routes: Mapping[str, EndpointRoute]) -> Iterator[Document]:
        targets: dict[str, Target] = {}
        models: dict[str, int] = {}
        for route in routes.values():
            for variant in route.every_variant():
                targets.update((target.id, target) for target in variant.targets)
                if variant.residency is not None:
                    models.update(variant.residency.loaded_counts())
        samples = self._sources.metering.samples
        for instance in sorted(self._sources.instances(), key=lambda each: each.request.id):
            request = instance.request
            if (request.account, request.region) != caller.scope:
                continue
            target, sample = targets.get(request.id), samples.get(request.id)
            use = None if sample is None else sample.use.utilization
            yield {
                "id": request.id,
                "endpoint": request.endpoint,
                "variant": request.variant,
                "node": instance.node,
                "address": f"{instance.host}:{instance.port}",
                "pid": instance.pid,
                "takes_requests": target is not None and not target.draining,
                "in_flight": 0 if target is None else target.outstanding,
                "models": models.get(request.id),
                "cpu": None if use is None else use.cpu,
                "memory": None if use is None else use.memory,
                "disk": None if use is None else use.disk,
            }

    async def _alarms(self, caller: Caller, key: Key | None) -> list[Document]:
        if not _may(key, "cloudwatch:DescribeAlarms"):
            return []
        answer = await self._sources.alarms({"AlarmTypes": ["MetricAlarm", "CompositeAlarm"]}, caller)
        return [*answer["MetricAlarms"], *answer["CompositeAlarms"]]

    async def _activities(self, caller: Caller, key: Key | None) -> list[Document]:
        if not _may(key, "application-autoscaling:DescribeScalingActivities"):
            return []
        asked = {"ServiceNamespace": "sagemaker", "MaxResults": _ACTIVITIES}
        answer = await self._sources.activities(asked, caller)
        return list(answer["ScalingActivities"])


def _backlog(endpoint: Document, caller: Caller, backlogs: Mapping[EndpointId, int]) -> int | None:
    if "AsyncInferenceConfig" not in endpoint:
        return None
    return backlogs.get(EndpointId(*caller.scope, endpoint["EndpointName"]), 0)


def _shares(route: EndpointRoute | None) -> dict[str, float]:
    """Configuration → which part of the endpoint's requests the fleet takes that is made of it."""
    if route is None:
        return {}
    beside = {fleet.config: fleet.share for fleet in route.beside}
    return {route.config: 1 - sum(beside.values()), **beside}


def _may(key: Key | None, action: str, endpoint: str | None = None) -> bool:
    """Whether a key lets its owner do that; everybody may, where there are no keys."""
    if key is None:
        return True
    try:
        key.check(action, endpoint)
    except ApiError:
        return False
    return True
