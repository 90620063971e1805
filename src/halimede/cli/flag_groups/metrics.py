"""Metrics and traces."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import (
    ADDRESS,
    BOOL,
    COUNT,
    FILE,
    INT,
    MILLISECONDS,
    PORT,
    Status,
    form,
    repeated,
    setting,
)

METRICS: Final = "Metrics"
TRACING: Final = "Tracing"


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """The flags of the group "Metrics" that do something."""

    allow_metrics: bool = setting(METRICS, BOOL, True, "Whether to serve metrics.")
    metrics_address: str = setting(
        METRICS, ADDRESS, "", "Address to serve metrics at.", shown_default="that of --http-address"
    )
    metrics_port: int = setting(METRICS, PORT, 8002, "Port to serve metrics at; 0 for a free one.")
    metrics_use_ssl: bool = setting(
        METRICS,
        BOOL,
        False,
        "Serve metrics over TLS as HTTP is served, with the same certificates; needs --http-use-ssl.",
    )
    allow_cpu_metrics: bool = setting(
        METRICS, BOOL, True, "Whether metrics tell of the machine's CPUs and memory."
    )
    allow_gpu_metrics: bool = setting(
        METRICS, BOOL, True, "Whether metrics tell of the machine's NVIDIA GPUs, where there are any."
    )
    metrics_interval_ms: int = setting(
        METRICS,
        MILLISECONDS,
        2000,
        "Gauges of the machine are measured anew when half of so many milliseconds have passed.",
    )
    metrics_config: tuple[str, ...] = repeated(
        METRICS,
        form("KEY=VALUE"),
        "counter_latencies=false stops the counters; histogram_latencies=true adds "
        "nv_inference_first_response_histogram_ms; summary_latencies=true adds summaries of latencies with "
        "summary_quantiles=QUANTILE:ERROR,….",
        shown_default="counter_latencies=true, histogram_latencies=false, summary_latencies=false",
    )


@dataclass(frozen=True, kw_only=True)
class TracingOptions:
    """The flags of the group "Tracing" that do something."""

    trace_config: tuple[str, ...] = repeated(
        TRACING,
        form("[MODE,]KEY=VALUE"),
        "Which requests are traced, and where traces go: level=TIMESTAMPS and level=TENSORS for times and the contents "
        "of tensors, rate=N to trace one of N requests, count=N to trace no more than N, mode=triton or "
        "mode=opentelemetry. In mode triton: triton,file=FILE for the file, and triton,log-frequency=N for files of N "
        "traced requests each, with a number after the name.",
        shown_default="level=OFF, rate=1000, count=-1, mode=triton",
    )
    trace_level: tuple[str, ...] = repeated(
        TRACING, form("LEVEL"), "Use --trace-config level=LEVEL.", status=Status.DEPRECATED
    )
    trace_rate: int = setting(
        TRACING, COUNT, 1000, "Use --trace-config rate=COUNT.", status=Status.DEPRECATED
    )
    trace_count: int = setting(TRACING, INT, -1, "Use --trace-config count=COUNT.", status=Status.DEPRECATED)
    trace_file: str = setting(
        TRACING, FILE, "", "Use --trace-config triton,file=FILE.", status=Status.DEPRECATED
    )
    trace_log_frequency: int = setting(
        TRACING, COUNT, 0, "Use --trace-config triton,log-frequency=COUNT.", status=Status.DEPRECATED
    )
