"""Metrics and traces."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import ADDRESS, BOOL, INTERVAL, PORT, form, repeated, setting

METRICS: Final = "Metrics"
TRACING: Final = "Tracing"


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """The flags of the group "Metrics"."""

    allow_metrics: bool = setting(METRICS, BOOL, True, "Serve metrics in the format of Prometheus.")
    metrics_address: str = setting(
        METRICS,
        ADDRESS,
        "",
        "Address to listen on for metrics.",
        shown_default="the address of --http-address",
    )
    metrics_port: int = setting(METRICS, PORT, 8002, "Port to listen on for metrics; 0 picks a free one.")
    metrics_use_ssl: bool = setting(
        METRICS, BOOL, False, "Serve metrics over TLS, with the certificates of HTTP. Needs --http-use-ssl."
    )
    allow_cpu_metrics: bool = setting(
        METRICS, BOOL, True, "Include metrics of the machine's CPUs and memory."
    )
    allow_gpu_metrics: bool = setting(
        METRICS, BOOL, True, "Include metrics of the machine's NVIDIA GPUs, if it has any."
    )
    metrics_interval_ms: int = setting(
        METRICS,
        INTERVAL,
        2000,
        "Gauges of the machine are measured again when they are older than half this time.",
    )
    metrics_config: tuple[str, ...] = repeated(
        METRICS,
        form("KEY=VALUE"),
        "counter_latencies=false omits the counters of durations. histogram_latencies=true adds "
        "nv_inference_first_response_histogram_ms. summary_latencies=true adds summaries of latencies, with the "
        "quantiles of summary_quantiles=QUANTILE:ERROR,…",
        shown_default="counter_latencies=true, histogram_latencies=false, summary_latencies=false",
    )


@dataclass(frozen=True, kw_only=True)
class TracingOptions:
    """The flags of the group "Tracing"."""

    trace_config: tuple[str, ...] = repeated(
        TRACING,
        form("[MODE,]KEY=VALUE"),
        "Which requests are traced, and where traces go. level=TIMESTAMPS records times, level=TENSORS the "
        "contents of tensors; rate=N traces one request in N; count=N stops after N traces. mode=triton writes "
        "them to the file of triton,file=FILE, or with triton,log-frequency=N to one file for every N traces. "
        "mode=opentelemetry sends them to the collector at opentelemetry,url=URL.",
        shown_default="level=OFF, rate=1000, count=-1, mode=triton",
    )
