"""The host's own pages, for whoever runs it: whether it is there, and metrics of all accounts for Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from halimede.core import tasks
from halimede.hosting.http.request import Request
from halimede.hosting.identity import EndpointId
from halimede.hosting.metering.metering import InstanceSample, Metering
from halimede.hosting.metering.shadows import AGREEMENT, EQUAL, LATENCY, LOST, NOT_COMPARED, STATUS
from halimede.hosting.routing.table import RoutingTable, VariantRoute

_TEXT = (("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),)

_COUNTERS = (
    ("invocations", "Invocations", "Requests sent to instances"),
    (
        "invocations_per_instance",
        "InvocationsPerInstance",
        "Requests sent, each over the number of instances",
    ),
    ("invocation_4xx_errors", "Invocation4XXErrors", "Requests answered with a status of 400 to 499"),
    ("invocation_5xx_errors", "Invocation5XXErrors", "Requests answered with a status of 500 or more"),
    ("invocation_model_errors", "InvocationModelErrors", "Requests to which an instance gave no 2xx"),
    ("model_cache_hits", "ModelCacheHit", "Requests whose model was loaded when they came"),
    ("data_capture_records", "DataCaptureRecords", "Invocations captured"),
    (
        "data_capture_records_uploaded",
        "DataCaptureRecordsUploaded",
        "Captured invocations written to a bucket",
    ),
    ("data_capture_records_too_large", "DataCaptureRecordsTooLarge", "Invocations too large to be captured"),
    (
        "data_capture_records_dropped",
        "DataCaptureRecordsDropped",
        "Captured invocations lost for want of room",
    ),
    ("data_capture_upload_failures", "DataCaptureUploadFailures", "Failures to write captured invocations"),
)

_SUMMARIES = (
    ("model_latency", "ModelLatency", "Time that instances took to answer"),
    ("overhead_latency", "OverheadLatency", "The rest of the time that requests were here"),
    ("model_loading_wait", "ModelLoadingWaitTime", "Time that requests waited for their model"),
    ("model_downloading", "ModelDownloadingTime", "Time to fetch and extract a model"),
    ("model_loading", "ModelLoadingTime", "Time in which an instance loaded a model"),
    ("model_unloading", "ModelUnloadingTime", "Time in which an instance unloaded a model"),
)

_SHADOW_COUNTERS = (
    ("shadow_copies_lost", LOST, "Copies of requests that a shadow variant did not get"),
    ("shadow_copies_not_compared", NOT_COMPARED, "Copies whose answers were not compared"),
    ("shadow_status_agreements", STATUS, "Copies of which both variants succeeded, or both failed"),
    ("shadow_agreements", AGREEMENT, "Copies with the same answer of both variants, within the tolerance"),
    ("shadow_equal_elements", EQUAL, "Copies, each counted as the share of its answer's elements that agree"),
)

_USES: tuple[tuple[str, str, Callable[[InstanceSample], float | None]], ...] = (
    ("cpu", "Processors that an instance uses, in per cent of one", lambda of: of.use.utilization.cpu),
    (
        "memory",
        "Memory that an instance uses, in per cent of its type's",
        lambda of: of.use.utilization.memory,
    ),
    ("disk", "Disk in use where an instance's models are, in per cent", lambda of: of.use.utilization.disk),
    ("gpu", "Time in which an instance's GPUs were busy, in per cent of one", lambda of: of.use.gpus.busy),
    ("gpu_memory", "Memory in use of an instance's GPUs, in per cent of one", lambda of: of.use.gpus.memory),
)

_MICROSECONDS = 1e6

Sample = tuple[Mapping[str, str], float]
"""Labels and a value."""


Backlogs = Callable[[], Mapping[EndpointId, int]]
"""Asynchronous endpoint → how many of its requests have not been answered."""


def pages(
    table: RoutingTable, metering: Metering, backlogs: Backlogs = dict
) -> Mapping[str, Callable[[Request], None]]:
    """Path → what answers it."""

    def metrics(request: Request) -> None:
        text = "".join((*_metrics(table, metering), *_backlogs(backlogs()), *_failed_tasks()))
        request.respond(200, text.encode(), _TEXT)

    return {"/ping": lambda request: request.respond(200, b"", _TEXT), "/metrics": metrics}


def _backlogs(backlogs: Mapping[EndpointId, int]) -> Iterator[str]:
    text = "Requests of asynchronous endpoints that have not been answered"
    samples = [
        ({"account": each.account, "region": each.region, "endpoint": each.name}, float(count))
        for each, count in backlogs.items()
    ]
    return _gauge("async_backlog", text, samples)


def _failed_tasks() -> Iterator[str]:
    text = "Background tasks that ended with an unexpected error"
    return _family("failed_tasks_total", "counter", text, {"": [({}, float(tasks.FAILURES.count))]})


def _metrics(table: RoutingTable, metering: Metering) -> Iterator[str]:
    """Prometheus text: what was counted since the host was started, and gauges as they are now."""
    metering.flush()
    meters = [
        (_labels(route.id, name), metering.meter(route.id, name))
        for route in table.routes()
        for name in route.by_name()
    ]
    for name, metric, text in _COUNTERS:
        values = [(labels, meter.sums[metric]) for labels, meter in meters]
        yield from _family(f"{name}_total", "counter", text, {"": values})
    lookups = [(labels, meter.counts["ModelCacheHit"]) for labels, meter in meters]
    yield from _family(
        "model_cache_lookups_total", "counter", "Requests for one of many models", {"": lookups}
    )
    for name, metric, text in _SUMMARIES:
        sums = [(labels, meter.sums[metric] / _MICROSECONDS) for labels, meter in meters]
        counts = [(labels, meter.counts[metric]) for labels, meter in meters]
        yield from _family(f"{name}_seconds", "summary", text, {"_sum": sums, "_count": counts})
    yield from _shadow_metrics(table, metering)
    yield from _gauge("instances", "Instances that take requests", _of(table, _instances))
    yield from _gauge(
        "requests_in_flight", "Requests that instances have not answered", _of(table, _inflight)
    )
    yield from _gauge("loaded_models", "Models that an instance holds", _loaded(table))
    for name, text, value in _USES:
        used = [(sample.request, value(sample)) for sample in metering.samples.values()]
        yield from _gauge(
            f"instance_{name}_utilization_percent",
            text,
            [
                ({**_labels(of.endpoint_id, of.variant), "instance": of.id}, each)
                for of, each in used
                if each is not None
            ],
        )


def _shadow_metrics(table: RoutingTable, metering: Metering) -> Iterator[str]:
    """Of shadow variants alone."""
    meters = [
        (_labels(route.id, name), metering.meter(route.id, name))
        for route in table.routes()
        for name in route.by_name()
        if all(name not in variants for variants in route.fleets())
    ]
    if not meters:
        return
    for name, metric, text in _SHADOW_COUNTERS:
        yield from _family(
            f"{name}_total", "counter", text, {"": [(labels, meter.sums[metric]) for labels, meter in meters]}
        )
    compared = [(labels, meter.counts[AGREEMENT]) for labels, meter in meters]
    yield from _family(
        "shadow_comparisons_total", "counter", "Copies whose answers were compared", {"": compared}
    )
    sums = [(labels, meter.sums[LATENCY] / _MICROSECONDS) for labels, meter in meters]
    counts = [(labels, meter.counts[LATENCY]) for labels, meter in meters]
    text = "Time that the production variant's instances took for what was copied"
    yield from _family("shadowed_model_latency_seconds", "summary", text, {"_sum": sums, "_count": counts})


def _gauge(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    return _family(name, "gauge", text, {"": samples})


def _family(name: str, kind: str, text: str, samples: Mapping[str, Iterable[Sample]]) -> Iterator[str]:
    """A metric of Prometheus: its samples, by what follows its name."""
    yield f"# HELP halimede_host_{name} {text}\n# TYPE halimede_host_{name} {kind}\n"
    for suffix, each in samples.items():
        for labels, value in each:
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"halimede_host_{name}{suffix}{{{shown}}} {value:.15g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _labels(endpoint: EndpointId, variant: str) -> dict[str, str]:
    return {
        "account": endpoint.account,
        "region": endpoint.region,
        "endpoint": endpoint.name,
        "variant": variant,
    }


def _instances(variant: VariantRoute) -> int:
    return len(variant.targets)


def _inflight(variant: VariantRoute) -> int:
    return sum(target.outstanding for target in variant.targets)


def _of(table: RoutingTable, value: Callable[[VariantRoute], int]) -> Iterator[Sample]:
    for route in table.routes():
        for name, variants in route.by_name().items():
            yield _labels(route.id, name), sum(value(variant) for variant in variants)


def _loaded(table: RoutingTable) -> Iterator[Sample]:
    for route in table.routes():
        for variant in route.every_variant():
            counts = variant.residency.loaded_counts() if variant.residency is not None else {}
            for instance, count in counts.items():
                yield {**_labels(route.id, variant.spec.name), "instance": instance}, count
