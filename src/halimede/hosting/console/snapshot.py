"""What the host is doing for a caller, as one document, of which the console makes rates.

    {"time", "started": seconds since the epoch, "host": {"version", "account", "region"},
     "endpoints": [what DescribeEndpoint says, and "Figures": [VARIANT, ...], "MultiModel": whether it has many models,
                   "Shares": {configuration: which part of the requests its fleet takes},
                   "Backlog": requests of an asynchronous endpoint that have not been answered, or null,
                   "Fleets": while there are two, [{"config": configuration, and as a VARIANT}, ...],
                   "Progress": null, or how far a deployment has come: {"stage", "step", "share", "began", "since",
                               "until", "reason"}],
     "instances": [{"id", "endpoint", "variant", "config", "node", "address", "pid", "takes_requests", "in_flight",
                    "models": how many it holds or null, "cpu", "memory", "disk": per cent or null}],
     "alarms": what DescribeAlarms says of alarms on metrics and composite ones,
     "alarm_changes": what DescribeAlarmHistory says of their states, the latest first,
     "activities": what DescribeScalingActivities says, the newest first}

A VARIANT is {"variant", "shadow", "instances", "in_flight", "counts": metric → count, "sums": metric → sum,
"latencies": [[latency, count], ...], "copies"}, with the metrics of `AWS/SageMaker`. Latencies are in microseconds;
those of "latencies" are of `ModelLatency`, to one per cent. Counts and sums only grow while the host runs. "copies"
tells of a shadow variant how many copies have not come to their end; null of others, and where other processes have
them. Times of a deployment's progress are in seconds since the epoch; `until` is 0 unless the stage ends by the clock.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import halimede
from halimede.hosting.console.sources import Sources
from halimede.hosting.console.visitor import Visitor
from halimede.hosting.control.deployments.progress import Progress
from halimede.hosting.identity import Caller, EndpointId, Scope
from halimede.hosting.metering.variant import VariantMeter
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute

Document = dict[str, Any]

_ACTIVITIES: Final = 50
_CHANGES: Final = 20
_CHANGES_S: Final = 5.0
"""So long changes of alarms are not read again."""

_ALARM_TYPES: Final = ["MetricAlarm", "CompositeAlarm"]


class HostSnapshots:
    """Makes them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._started = time.time()
        self._changes: dict[Scope, tuple[float, list[Document]]] = {}

    async def take(self, visitor: Visitor) -> Document:
        """The document, of what the visitor may see.

        Raises:
            ApiError: their key lets them see no endpoints.
        """
        visitor.check("sagemaker:ListEndpoints")
        sources, caller = self._sources, visitor.caller
        sources.metering.flush()
        routes = {route.name: route for route in sources.table.routes() if route.id.scope == caller.scope}
        progress, backlogs = sources.controller.progress(caller), sources.backlogs()
        endpoints = [
            {
                **self._endpoint(described, routes.get(described["EndpointName"]), progress),
                "Backlog": _backlog(described, caller, backlogs),
            }
            for described in sources.controller.describe_all(caller)
            if visitor.may("sagemaker:DescribeEndpoint", described["EndpointName"])
        ]
        seen = {each["EndpointName"] for each in endpoints}
        return {
            "time": time.time(),
            "started": self._started,
            "host": {"version": halimede.__version__, "account": caller.account, "region": caller.region},
            "endpoints": endpoints,
            "instances": [each for each in self._instances(caller, routes) if each["endpoint"] in seen],
            "alarms": await self._alarms(visitor),
            "alarm_changes": await self._alarm_changes(visitor),
            "activities": await self._activities(visitor),
        }

    def _endpoint(
        self,
        described: Mapping[str, Any],
        route: EndpointRoute | None,
        progress: Mapping[str, Progress],
    ) -> Document:
        under_way = progress.get(described["EndpointName"])
        document = {**described, "Progress": None if under_way is None else _progress(under_way)}
        if route is None:
            return {**document, "MultiModel": False, "Shares": {}, "Figures": [], "Fleets": []}
        return {
            **document,
            "MultiModel": any(variant.residency is not None for variant in route.every_variant()),
            "Shares": _shares(route),
            "Figures": self._figures(route),
            "Fleets": self._fleets(route) if route.beside else [],
        }

    def _figures(self, route: EndpointRoute) -> list[Document]:
        serving = {name for variants in route.fleets() for name in variants}
        return [
            {
                **_figures(name, variants, self._sources.metering.meter(route.id, name)),
                "shadow": name not in serving,
                "copies": None if name in serving else self._copies(variants),
            }
            for name, variants in route.by_name().items()
        ]

    def _copies(self, variants: Iterable[VariantRoute]) -> int | None:
        count = self._sources.copies
        return None if count is None else sum(map(count, variants))

    def _fleets(self, route: EndpointRoute) -> list[Document]:
        """The variants of each fleet apart; what came without an update is what the others are not."""
        metering, found = self._sources.metering, []
        for config, variants in _fleets_of(route):
            for name, variant in variants.items():
                meter = metering.meter(route.id, name, variant.config)
                others = [
                    metering.meter(route.id, name, each.config)
                    for each in route.by_name()[name]
                    if each.config and not variant.config
                ]
                found.append({"config": config, **_figures(name, [variant], meter, others)})
        return found

    def _instances(self, caller: Caller, routes: Mapping[str, EndpointRoute]) -> Iterator[Document]:
        targets: dict[str, tuple[Target, str]] = {}
        models: dict[str, int] = {}
        for route in routes.values():
            for config, variants in _fleets_of(route):
                for variant in _with_shadows(variants):
                    targets.update((target.id, (target, config)) for target in variant.targets)
                    if variant.residency is not None:
                        models.update(variant.residency.loaded_counts())
        samples = self._sources.metering.samples
        for instance in sorted(self._sources.instances(), key=lambda each: each.request.id):
            request = instance.request
            if (request.account, request.region) != caller.scope:
                continue
            target, config = targets.get(request.id, (None, ""))
            sample = samples.get(request.id)
            use = None if sample is None else sample.use.utilization
            yield {
                "id": request.id,
                "endpoint": request.endpoint,
                "variant": request.variant,
                "config": config,
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

    async def _alarms(self, visitor: Visitor) -> list[Document]:
        if not visitor.may("cloudwatch:DescribeAlarms"):
            return []
        answer = await self._sources.alarms["DescribeAlarms"]({"AlarmTypes": _ALARM_TYPES}, visitor.caller)
        return [*answer["MetricAlarms"], *answer["CompositeAlarms"]]

    async def _alarm_changes(self, visitor: Visitor) -> list[Document]:
        if not visitor.may("cloudwatch:DescribeAlarmHistory"):
            return []
        scope, now = visitor.caller.scope, time.monotonic()
        read, changes = self._changes.get(scope, (-_CHANGES_S, []))
        if now - read >= _CHANGES_S:
            asked = {
                "AlarmTypes": _ALARM_TYPES,
                "HistoryItemType": "StateUpdate",
                "MaxRecords": _CHANGES,
            }
            answer = await self._sources.alarms["DescribeAlarmHistory"](asked, visitor.caller)
            changes = [
                {name: value for name, value in each.items() if name != "HistoryData"}
                for each in answer["AlarmHistoryItems"]
            ]
            self._changes[scope] = now, changes
        return changes

    async def _activities(self, visitor: Visitor) -> list[Document]:
        if not visitor.may("application-autoscaling:DescribeScalingActivities"):
            return []
        asked = {"ServiceNamespace": "sagemaker", "MaxResults": _ACTIVITIES}
        answer = await self._sources.activities(asked, visitor.caller)
        return list(answer["ScalingActivities"])


def _figures(
    name: str, variants: Sequence[VariantRoute], meter: VariantMeter, others: Sequence[VariantMeter] = ()
) -> Document:
    """What a meter has counted, but for what others have counted of it."""
    latencies = Counter(_latencies(meter))
    for each in others:
        latencies.subtract(_latencies(each))
    return {
        "variant": name,
        "shadow": False,
        "instances": sum(len(each.targets) for each in variants),
        "in_flight": sum(target.outstanding for each in variants for target in each.targets),
        "counts": _rest(meter.counts, [each.counts for each in others]),
        "sums": _rest(meter.sums, [each.sums for each in others]),
        "latencies": [(value, count) for value, count in latencies.items() if count],
        "copies": None,
    }


def _latencies(meter: VariantMeter) -> dict[float, int]:
    return {round(value, 3): round(count) for value, count in meter.latencies.histogram()}


def _rest(counts: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: count - sum(other[name] for other in others) for name, count in counts.items()}


def _fleets_of(route: EndpointRoute) -> Iterator[tuple[str, Mapping[str, VariantRoute]]]:
    """The configuration and the variants of each fleet."""
    yield route.config, route.variants
    for fleet in route.beside:
        yield fleet.config, fleet.variants


def _with_shadows(variants: Mapping[str, VariantRoute]) -> Iterator[VariantRoute]:
    for variant in variants.values():
        yield variant
        if variant.shadow is not None:
            yield variant.shadow


def _backlog(endpoint: Mapping[str, Any], caller: Caller, backlogs: Mapping[EndpointId, int]) -> int | None:
    if "AsyncInferenceConfig" not in endpoint:
        return None
    return backlogs.get(EndpointId(*caller.scope, endpoint["EndpointName"]), 0)


def _progress(progress: Progress) -> Document:
    return {
        "stage": progress.stage,
        "step": progress.step,
        "share": progress.share,
        "began": progress.began,
        "since": progress.since,
        "until": progress.until,
        "reason": progress.reason,
    }


def _shares(route: EndpointRoute) -> dict[str, float]:
    """Configuration → which part of the endpoint's requests the fleet takes that is made of it."""
    beside = {fleet.config: fleet.share for fleet in route.beside}
    return {route.config: 1 - sum(beside.values()), **beside}
