"""Metrics as Prometheus text, rendered when they are scraped: the server's own, then those of models.

`docs/metrics.md` explains each of the server's.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from math import isnan
from typing import Final

from halimede.core import tasks
from halimede.engine.engine import Engine
from halimede.engine.histogram import Exemplar, Histogram
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import ModelStatistics
from halimede.engine.summaries import LatencySummaries, Summary
from halimede.frontends import cache_metrics, openmetrics, text_metrics, traffic_metrics
from halimede.frontends.family import Family
from halimede.frontends.gauges import CpuUtilization, memory_bytes
from halimede.frontends.gpu_gauges import GpuGauges, GpuSample
from halimede.frontends.http.answers import AnswerInSteps, error_body
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.steps_of_work import in_steps
from halimede.frontends.traffic import Traffic

CONTENT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Settings of the metrics.

    Attributes:
        cpu: whether to tell of the machine's processors and memory.
        counter_latencies: whether there are counters of durations.
        histogram_latencies: whether to tell of the times to first responses.
        summary_quantiles: the quantiles of summaries, None for no summaries.
        interval_ms: gauges are measured anew when half of so many milliseconds have passed.
        pinned_memory_bytes: size of the pool of pinned memory.
    """

    cpu: bool = True
    counter_latencies: bool = True
    histogram_latencies: bool = False
    summary_quantiles: tuple[float, ...] | None = None
    interval_ms: int = 2000
    pinned_memory_bytes: int = 268_435_456


@dataclass(frozen=True, slots=True)
class _Counter:
    family: Family
    value: Callable[[ModelStatistics], int]


@dataclass(frozen=True, slots=True)
class _GpuGauge:
    family: Family
    value: Callable[[GpuSample], int | float | None]


@dataclass(frozen=True, slots=True)
class _Histogram:
    family: Family
    value: Callable[[ModelStatistics], Histogram]


@dataclass(frozen=True, slots=True)
class _Summary:
    family: Family
    value: Callable[[LatencySummaries], Summary]


_US = 1_000

COUNTERS = (
    _Counter(
        Family("nv_inference_request_success", "counter", "Requests answered"),
        lambda counts: counts.success.count,
    ),
    _Counter(
        Family("nv_inference_count", "counter", "Inferences: rows of the batches that were executed"),
        lambda counts: counts.inference_count,
    ),
    _Counter(
        Family("nv_inference_exec_count", "counter", "Executions; a batch counts once"),
        lambda counts: counts.execution_count,
    ),
)
TOKENS = Family(
    "halimede_batch_tokens_total", "counter", "Tokens of batches that are closed by tokens, text and padding"
)
FAILURES = Family("nv_inference_request_failure", "counter", "Requests failed, by reason")
DURATIONS = (
    _Counter(
        Family(
            "nv_inference_request_duration_us", "counter", "Time from receipt to response, in microseconds"
        ),
        lambda counts: counts.success.ns // _US,
    ),
    _Counter(
        Family("nv_inference_queue_duration_us", "counter", "Time in the queue, in microseconds"),
        lambda counts: counts.queue.ns // _US,
    ),
    _Counter(
        Family("nv_inference_compute_input_duration_us", "counter", "Time to gather inputs, in microseconds"),
        lambda counts: counts.compute_input.ns // _US,
    ),
    _Counter(
        Family("nv_inference_compute_infer_duration_us", "counter", "Time to run the model, in microseconds"),
        lambda counts: counts.compute_infer.ns // _US,
    ),
    _Counter(
        Family(
            "nv_inference_compute_output_duration_us", "counter", "Time to hand out outputs, in microseconds"
        ),
        lambda counts: counts.compute_output.ns // _US,
    ),
)
PENDING = Family("nv_inference_pending_request_count", "gauge", "Requests that wait for an execution")
LOAD_DURATION = Family(
    "nv_model_load_duration_secs", "gauge", "Time that the version took to load, in seconds"
)
HISTOGRAMS = (
    _Histogram(
        Family(
            "nv_inference_request_duration_histogram_us",
            "histogram",
            "Time from receipt to response, in microseconds",
        ),
        lambda counts: counts.request_us,
    ),
    _Histogram(
        Family("nv_inference_queue_duration_histogram_us", "histogram", "Time in the queue, in microseconds"),
        lambda counts: counts.queue_us,
    ),
    _Histogram(
        Family(
            "nv_inference_compute_duration_histogram_us",
            "histogram",
            "Time to gather inputs, run the model and hand out outputs, in microseconds",
        ),
        lambda counts: counts.compute_us,
    ),
    _Histogram(
        Family("nv_inference_batch_size_histogram", "histogram", "Rows of the batches that were executed"),
        lambda counts: counts.batch_size,
    ),
)
FIRST_RESPONSE = _Histogram(
    Family(
        "nv_inference_first_response_histogram_ms",
        "histogram",
        "Time from receipt to first response, in milliseconds",
    ),
    lambda counts: counts.first_response_ms,
)
SUMMARIES = (
    _Summary(
        Family(
            "nv_inference_request_summary_us", "summary", "Time from receipt to response, in microseconds"
        ),
        lambda summaries: summaries.request,
    ),
    _Summary(
        Family("nv_inference_queue_summary_us", "summary", "Time in the queue, in microseconds"),
        lambda summaries: summaries.queue,
    ),
    _Summary(
        Family("nv_inference_compute_input_summary_us", "summary", "Time to gather inputs, in microseconds"),
        lambda summaries: summaries.compute_input,
    ),
    _Summary(
        Family("nv_inference_compute_infer_summary_us", "summary", "Time to run the model, in microseconds"),
        lambda summaries: summaries.compute_infer,
    ),
    _Summary(
        Family(
            "nv_inference_compute_output_summary_us", "summary", "Time to hand out outputs, in microseconds"
        ),
        lambda summaries: summaries.compute_output,
    ),
)
MODEL_MEMORY = Family(
    "halimede_model_memory_bytes", "gauge", "Memory that the version takes, or is to take, in bytes"
)
MODEL_MEMORY_BUDGET = Family(
    "halimede_model_memory_budget_bytes", "gauge", "Memory that all models may take together, in bytes"
)
MODEL_LOADS = Family("halimede_model_loads_total", "counter", "Model versions that were loaded")
MODEL_EVICTIONS = Family(
    "halimede_model_evictions_total", "counter", "Models that were unloaded to make room for others"
)
TRACES_DROPPED = Family(
    "halimede_traces_dropped_total",
    "counter",
    "Traces lost, as the collector or the disk did not take them in time",
)
BUSY_WAIT = Family(
    "halimede_busy_wait_seconds_total",
    "counter",
    "Processor time that was spent on watching for messages instead of sleeping, in seconds",
)
HTTP_REQUESTS = Family(
    "halimede_http_requests_total", "counter", "Requests answered over HTTP, by route and status"
)
GRPC_REQUESTS = Family("halimede_grpc_requests_total", "counter", "Calls over gRPC, by method and status")
IN_FLIGHT = Family("halimede_requests_in_flight", "gauge", "Requests that are not answered yet")
EXECUTING = Family(
    "halimede_inference_executing_request_count", "gauge", "Requests whose execution is under way"
)
SLOW_EXECUTIONS = Family(
    "halimede_slow_executions", "gauge", "Instances whose execution has been running for too long"
)
FAILED_TASKS = Family(
    "halimede_failed_tasks_total", "counter", "Background tasks that ended with an unexpected error"
)
CONNECTIONS = Family("halimede_open_connections", "gauge", "Connections of clients")
REFUSED_CONNECTIONS = Family(
    "halimede_refused_connections_total", "counter", "Connections that were one too many"
)
REFUSED_REQUESTS = Family(
    "halimede_refused_requests_total", "counter", "Requests of which too many were in flight"
)
RESIDENT_MEMORY = Family(
    "halimede_resident_memory_bytes", "gauge", "Memory of the server's process, in bytes"
)
OPEN_FILES = Family("halimede_open_file_descriptors", "gauge", "File descriptors that the process has open")
CPU_UTILIZATION = Family(
    "nv_cpu_utilization", "gauge", "Share of the machine's processor time in use, 0 to 1"
)
CPU_MEMORY_TOTAL = Family("nv_cpu_memory_total_bytes", "gauge", "The machine's memory, in bytes")
CPU_MEMORY_USED = Family("nv_cpu_memory_used_bytes", "gauge", "The machine's memory in use, in bytes")
PINNED_TOTAL = Family(
    "nv_pinned_memory_pool_total_bytes", "gauge", "Size of the pool of pinned memory, in bytes"
)
PINNED_USED = Family("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory in use, in bytes")
GPUS = (
    _GpuGauge(
        Family("nv_gpu_utilization", "gauge", "Share of the time in which the GPU computed, 0 to 1"),
        lambda sample: sample.utilization,
    ),
    _GpuGauge(
        Family("nv_gpu_memory_total_bytes", "gauge", "The GPU's memory, in bytes"),
        lambda sample: sample.memory_total,
    ),
    _GpuGauge(
        Family("nv_gpu_memory_used_bytes", "gauge", "The GPU's memory in use, in bytes"),
        lambda sample: sample.memory_used,
    ),
    _GpuGauge(
        Family("nv_gpu_power_usage", "gauge", "Power that the GPU draws, in watts"),
        lambda sample: sample.power_usage,
    ),
    _GpuGauge(
        Family("nv_gpu_power_limit", "gauge", "Power that the GPU may draw, in watts"),
        lambda sample: sample.power_limit,
    ),
    _GpuGauge(
        Family(
            "nv_energy_consumption",
            "counter",
            "Energy that the GPU used since the server was started, in joules",
        ),
        lambda sample: sample.energy,
    ),
)

FAMILIES = (
    *(each.family for each in (*COUNTERS, *DURATIONS, *HISTOGRAMS, FIRST_RESPONSE, *SUMMARIES)),
    TOKENS,
    FAILURES,
    PENDING,
    LOAD_DURATION,
    MODEL_MEMORY,
    MODEL_MEMORY_BUDGET,
    MODEL_LOADS,
    MODEL_EVICTIONS,
    TRACES_DROPPED,
    BUSY_WAIT,
    HTTP_REQUESTS,
    GRPC_REQUESTS,
    IN_FLIGHT,
    EXECUTING,
    SLOW_EXECUTIONS,
    FAILED_TASKS,
    CONNECTIONS,
    REFUSED_CONNECTIONS,
    REFUSED_REQUESTS,
    RESIDENT_MEMORY,
    OPEN_FILES,
    CPU_UTILIZATION,
    CPU_MEMORY_TOTAL,
    CPU_MEMORY_USED,
    PINNED_TOTAL,
    PINNED_USED,
)
"""The families of every scrape; where there are GPUs, those of `GPUS` come with them, and with a response cache those
of `cache_metrics`, and with a language model those of `text_metrics`."""

_PIECE_LINES: Final = 500
_PIECE_MODELS: Final = 200
"""What takes about a millisecond."""


class Metrics:
    """The metrics of one server."""

    def __init__(
        self,
        engine: Engine,
        settings: MetricsSettings,
        gpus: GpuGauges | None = None,
        traffic: Sequence[Traffic] = (),
    ) -> None:
        self._engine = engine
        self._traffic = traffic
        self._settings = settings
        self._gpus = gpus
        self._cpu = CpuUtilization(engine.clock, settings.interval_ms // 2)
        engine.custom_metrics.reserve([family.name for family in FAMILIES])
        engine.custom_metrics.reserve([each.family.name for each in GPUS])
        engine.custom_metrics.reserve([family.name for family in cache_metrics.FAMILIES])
        engine.custom_metrics.reserve([family.name for family in text_metrics.FAMILIES])

    def render(self) -> bytes:
        """All metrics as they stand, in Prometheus' text format."""
        return b"".join(_encoded(lines) for lines in self._pieces())

    def render_openmetrics(self) -> bytes:
        """The same in OpenMetrics' text format, and requests that are traced as exemplars in the histograms."""
        return b"".join(_encoded(lines) for lines in self._openmetrics())

    def _openmetrics(self) -> Iterator[list[str]]:
        lines = openmetrics.openmetrics(chain.from_iterable(self._pieces()), self._exemplars())
        while piece := list(islice(lines, _PIECE_LINES)):
            yield piece

    def _pieces(self) -> Iterator[list[str]]:
        """The lines, in pieces of about a millisecond of work: there may be thousands of models."""
        lines: list[str] = []
        for more in self._families():
            lines += more
            if len(lines) >= _PIECE_LINES or not more:
                yield lines
                lines = []
        yield lines

    def _families(self) -> Iterator[list[str]]:
        """The lines of each family, in such pieces; an empty one after so much work without lines."""
        settings = self._settings
        models: list[tuple[ServedModel, str]] = []
        for number, model in enumerate(self._engine.lifecycle.loaded_models(), 1):
            models.append((model, labels(model)))
            if number % _PIECE_MODELS == 0:
                yield []
        for each in (*COUNTERS, *(DURATIONS if settings.counter_latencies else ())):
            yield from _family(each.family, ((text, each.value(model.statistics)) for model, text in models))
        yield from _family(TOKENS, _tokens(models))
        yield from _family(FAILURES, _failures(models))
        yield from _family(PENDING, ((text, model.pending) for model, text in models))
        yield from _family(LOAD_DURATION, ((text, model.statistics.load_ns / 1e9) for model, text in models))
        for histogram in (*HISTOGRAMS, *((FIRST_RESPONSE,) if settings.histogram_latencies else ())):
            found = ((text, histogram.value(model.statistics)) for model, text in models)
            yield from _histogram_family(histogram.family, found)
        if settings.summary_quantiles is not None:
            for summary in SUMMARIES:
                yield from _summary_family(summary, models, settings.summary_quantiles)
        for family, values in text_metrics.samples(models):
            yield from _family(family, values)
        for family, histograms in text_metrics.histograms(models):
            yield from _histogram_family(family, histograms)
        yield from self._cache(models)
        yield from self._memory()
        yield from self._traces()
        busy = self._engine.lifecycle.busy_wait
        waits = (("server", busy.server_ns), ("workers", busy.workers_ns))
        yield from _family(BUSY_WAIT, ((f'side="{side}"', spent / 1e9) for side, spent in waits))
        executing = ((text, model.inflight - model.pending) for model, text in models)
        yield from _family(EXECUTING, executing)
        slow = ((text, sum(each.slow_s > 0 for each in model.activity())) for model, text in models)
        yield from _family(SLOW_EXECUTIONS, slow)
        yield from _family(FAILED_TASKS, (("", tasks.FAILURES.count),))
        yield from self._requests()
        yield from self._gauges()
        yield list(self._engine.custom_metrics.lines())

    def _exemplars(self) -> dict[str, Exemplar]:
        """Name and labels of buckets of histograms → an observation that is traced."""
        return {
            _bucket(each.family.name, labels(model), (*histogram.bounds, "+Inf")[number]): exemplar
            for model in self._engine.lifecycle.loaded_models()
            for each in (*HISTOGRAMS, FIRST_RESPONSE)
            for histogram in (each.value(model.statistics),)
            for number, exemplar in histogram.exemplars.items()
        }

    def answer(self, exchange: Exchange) -> None:
        """Answer one HTTP request; as with tritonserver, paths other than that of the metrics are empty."""
        if exchange.method != "GET":
            exchange.respond(405, (error_body("Method Not Allowed"),), "application/json")
        elif exchange.path in ("/metrics", "/metrics/"):
            wanted = openmetrics.is_wanted(exchange.headers.get("accept", ""))
            content_type = openmetrics.CONTENT_TYPE if wanted else CONTENT_TYPE

            def respond(parts: list[bytes]) -> None:
                exchange.respond(200, parts, content_type)

            pieces = self._openmetrics() if wanted else self._pieces()
            AnswerInSteps(exchange, in_steps(pieces, _encoded, 1), respond).take()
        else:
            exchange.respond(200, content_type=CONTENT_TYPE)

    def _cache(self, models: Sequence[tuple[ServedModel, str]]) -> Iterator[list[str]]:
        cache = self._engine.lifecycle.cache
        if cache is None:
            return
        models = cache_metrics.cached(models)
        for family, samples in cache_metrics.counters(models, durations=self._settings.counter_latencies):
            yield from _family(family, samples)
        for family, samples in cache_metrics.gauges(cache):
            yield from _family(family, samples)
        quantiles = self._settings.summary_quantiles
        for summary in cache_metrics.SUMMARIES if quantiles is not None else ():
            yield from _summary_family(summary, models, quantiles or ())

    def _memory(self) -> Iterator[list[str]]:
        memory = self._engine.lifecycle.memory
        held = Counter[tuple[str, int]]()
        for holding in memory.ledger:
            held[holding.name, holding.version] += holding.total
        yield from _family(
            MODEL_MEMORY,
            (
                (f'model="{_escaped(name)}",version="{version}"', size)
                for (name, version), size in sorted(held.items())
            ),
        )
        budget = memory.ledger.budget
        yield from _family(MODEL_MEMORY_BUDGET, () if budget is None else (("", budget),))
        yield from _family(MODEL_LOADS, (("", memory.loads),))
        yield from _family(MODEL_EVICTIONS, (("", memory.evictions),))

    def _traces(self) -> Iterator[list[str]]:
        dropped = self._engine.tracing.dropped
        yield from _family(TRACES_DROPPED, () if dropped is None else (("", dropped),))

    def _requests(self) -> Iterator[list[str]]:
        traffic = self._traffic
        yield from _family(HTTP_REQUESTS, traffic_metrics.http_requests(traffic))
        yield from _family(GRPC_REQUESTS, traffic_metrics.grpc_requests(traffic))
        yield from _family(IN_FLIGHT, traffic_metrics.in_flight(traffic))
        yield from _family(CONNECTIONS, traffic_metrics.open_connections(traffic))
        yield from _family(REFUSED_CONNECTIONS, traffic_metrics.refused_connections(traffic))
        inflight = self._engine.inflight
        yield from _family(REFUSED_REQUESTS, () if inflight is None else (("", inflight.refused),))
        yield from _family(RESIDENT_MEMORY, traffic_metrics.resident_memory())
        yield from _family(OPEN_FILES, traffic_metrics.open_files())

    def _gauges(self) -> Iterator[list[str]]:
        memory = memory_bytes() if self._settings.cpu else None
        if memory is not None:
            yield from _family(CPU_UTILIZATION, (("", self._cpu.read()),))
            yield from _family(CPU_MEMORY_TOTAL, (("", memory[0]),))
            yield from _family(CPU_MEMORY_USED, (("", memory[1]),))
        yield from _family(PINNED_TOTAL, (("", self._settings.pinned_memory_bytes),))
        yield from _family(PINNED_USED, (("", 0),))
        if self._gpus is not None:
            samples = self._gpus.samples
            for each in GPUS:
                yield from _family(each.family, _gpu_samples(each, samples))


def labels(model: ServedModel, **more: str) -> str:
    """The labels of a model's metrics, without braces, by name: its tags, `model`, `version`, and what is added."""
    named = {
        "_" + re.sub(r"\W", "_", key, flags=re.ASCII): value
        for key, value in model.config.metric_tags.items()
    }
    named |= {"model": model.name, "version": str(model.version)} | more
    if namespace := model.identifier.removesuffix(model.name):
        named["namespace"] = namespace.removesuffix("::")
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(named.items()))


def _gpu_samples(gauge: _GpuGauge, samples: Sequence[GpuSample]) -> Iterable[tuple[str, int | float]]:
    for sample in samples:
        value = gauge.value(sample)
        if value is not None:
            yield f'gpu_uuid="{_escaped(sample.uuid)}"', value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _failures(models: Sequence[tuple[ServedModel, str]]) -> Iterable[tuple[str, int]]:
    for model, _ in models:
        for reason, count in model.statistics.failures.items():
            yield labels(model, reason=reason.value), count


def _tokens(models: Sequence[tuple[ServedModel, str]]) -> Iterable[tuple[str, int]]:
    for model, _ in models:
        if model.signature.tokens is not None:
            yield labels(model, kind="text"), model.statistics.tokens
            yield labels(model, kind="padding"), model.statistics.padding


def _encoded(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _head(family: Family) -> list[str]:
    return [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}"]


def _family(family: Family, samples: Iterable[tuple[str, int | float]]) -> Iterator[list[str]]:
    lines = _head(family)
    for text, value in samples:
        lines.append(f"{family.name}{{{text}}} {value}" if text else f"{family.name} {value}")
        if len(lines) >= _PIECE_LINES:
            yield lines
            lines = []
    yield lines


def _histogram_family(family: Family, samples: Iterable[tuple[str, Histogram]]) -> Iterator[list[str]]:
    lines = _head(family)
    for text, histogram in samples:
        _add_histogram(lines, family.name, text, histogram)
        if len(lines) >= _PIECE_LINES:
            yield lines
            lines = []
    yield lines


def _summary_family(
    summary: "_Summary | cache_metrics.CacheSummary",
    models: Iterable[tuple[ServedModel, str]],
    quantiles: Iterable[float],
) -> Iterator[list[str]]:
    lines = _head(summary.family)
    for model, text in models:
        if model.statistics.summaries is not None:
            observed = summary.value(model.statistics.summaries)
            _add_summary(lines, summary.family.name, text, observed, quantiles)
        if len(lines) >= _PIECE_LINES:
            yield lines
            lines = []
    yield lines


def _add_histogram(lines: list[str], name: str, text: str, histogram: Histogram) -> None:
    cumulated = list(accumulate(histogram.counts))
    for bound, count in zip((*histogram.bounds, "+Inf"), cumulated, strict=True):
        lines.append(f"{_bucket(name, text, bound)} {count}")
    lines.append(f"{name}_sum{{{text}}} {histogram.total}")
    lines.append(f"{name}_count{{{text}}} {cumulated[-1]}")


def _bucket(name: str, text: str, bound: object) -> str:
    return f'{name}_bucket{{{text},le="{bound}"}}'


def _add_summary(
    lines: list[str], name: str, text: str, summary: Summary, quantiles: Iterable[float]
) -> None:
    lines.append(f"{name}_count{{{text}}} {summary.count}")
    lines.append(f"{name}_sum{{{text}}} {summary.total}")
    for share in quantiles:
        value = summary.quantile(share)
        lines.append(f'{name}{{{text},quantile="{share:g}"}} {"Nan" if isnan(value) else round(value)}')
