"""Write the dashboards for Grafana: `python -m scripts.dashboards`. `--check` only says whether they are fresh."""

import json
import sys
from pathlib import Path
from typing import Any

from scripts import generated

DIRECTORY = Path(__file__).parents[1] / "deploy" / "grafana"

_MODEL = '{job=~"$job",model=~"$model"}'
_HOST = '{job=~"$job",endpoint=~"$endpoint"}'


def _mean(part: str) -> str:
    """Mean time of a part of a request, in microseconds."""
    durations, requests = f"nv_inference_{part}_duration_us", "nv_inference_request_success"
    return f"sum by (model) (rate({durations}{_MODEL}[5m])) / sum by (model) (rate({requests}{_MODEL}[5m]))"


def _quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share}, sum by (model, le) (rate({histogram}_bucket{_MODEL}[5m])))"


def _rate(counter: str, by: str, labels: str) -> str:
    return f"sum by ({by}) (rate({counter}{labels}[5m]))"


def _host_mean(summary: str) -> str:
    total, count = (_rate(f"{summary}_{each}", "endpoint, variant", _HOST) for each in ("sum", "count"))
    return f"{total} / {count}"


_REQUEST, _QUEUE = "nv_inference_request_duration_histogram_us", "nv_inference_queue_duration_histogram_us"

Panel = tuple[str, str, dict[str, str]]
"""Title, unit, and legend → expression."""

SERVER: list[Panel] = [
    ("Requests", "reqps", {"{{model}}": _rate("nv_inference_request_success", "model", _MODEL)}),
    (
        "Failures",
        "reqps",
        {"{{model}} {{reason}}": _rate("nv_inference_request_failure", "model, reason", _MODEL)},
    ),
    (
        "Latency",
        "µs",
        {"{{model}} p50": _quantile(0.5, _REQUEST), "{{model}} p99": _quantile(0.99, _REQUEST)},
    ),
    ("Time in the queue, p99", "µs", {"{{model}}": _quantile(0.99, _QUEUE)}),
    (
        "Mean time of a request",
        "µs",
        {
            f"{{{{model}}}} {part.replace('_', ' ')}": _mean(part)
            for part in ("queue", "compute_input", "compute_infer", "compute_output")
        },
    ),
    (
        "Mean batch size",
        "short",
        {
            "{{model}}": f"{_rate('nv_inference_count', 'model', _MODEL)}"
            f" / {_rate('nv_inference_exec_count', 'model', _MODEL)}"
        },
    ),
    (
        "Waiting and executing",
        "short",
        {
            "{{model}} waits": f"sum by (model) (nv_inference_pending_request_count{_MODEL})",
            "{{model}} executes": f"sum by (model) (halimede_inference_executing_request_count{_MODEL})",
        },
    ),
    (
        "Memory of models",
        "bytes",
        {
            "{{model}}": f"sum by (model) (halimede_model_memory_bytes{_MODEL})",
            "budget of {{instance}}": 'halimede_model_memory_budget_bytes{job=~"$job"}',
        },
    ),
    (
        "Hits of the response cache",
        "percentunit",
        {
            "{{model}}": f"{_rate('nv_cache_num_hits_per_model', 'model', _MODEL)} / "
            f"({_rate('nv_cache_num_hits_per_model', 'model', _MODEL)}"
            f" + {_rate('nv_cache_num_misses_per_model', 'model', _MODEL)})"
        },
    ),
    (
        "Calls over HTTP and gRPC",
        "reqps",
        {
            "{{route}} {{status}}": _rate("halimede_http_requests_total", "route, status", '{job=~"$job"}'),
            "{{method}} {{status}}": _rate("halimede_grpc_requests_total", "method, status", '{job=~"$job"}'),
        },
    ),
    (
        "Loads and evictions",
        "short",
        {
            "loads": 'sum(increase(halimede_model_loads_total{job=~"$job"}[5m]))',
            "evictions": 'sum(increase(halimede_model_evictions_total{job=~"$job"}[5m]))',
        },
    ),
    (
        "GPUs",
        "percentunit",
        {
            "{{gpu_uuid}} busy": 'nv_gpu_utilization{job=~"$job"}',
            "{{gpu_uuid}} memory": 'nv_gpu_memory_used_bytes{job=~"$job"} / nv_gpu_memory_total_bytes{job=~"$job"}',
        },
    ),
]

_SHOWN = "{{endpoint}} {{variant}}"
HOST: list[Panel] = [
    ("Invocations", "reqps", {_SHOWN: _rate("halimede_host_invocations_total", "endpoint, variant", _HOST)}),
    (
        "Errors",
        "reqps",
        {
            f"{_SHOWN} {kind}": _rate(
                f"halimede_host_invocation_{kind}_errors_total", "endpoint, variant", _HOST
            )
            for kind in ("4xx", "5xx")
        },
    ),
    ("Mean latency of models", "s", {_SHOWN: _host_mean("halimede_host_model_latency_seconds")}),
    ("Mean latency of the host", "s", {_SHOWN: _host_mean("halimede_host_overhead_latency_seconds")}),
    ("Instances", "short", {_SHOWN: f"sum by (endpoint, variant) (halimede_host_instances{_HOST})"}),
    ("In flight", "short", {_SHOWN: f"sum by (endpoint, variant) (halimede_host_requests_in_flight{_HOST})"}),
    (
        "Requests whose model was loaded",
        "percentunit",
        {
            _SHOWN: f"{_rate('halimede_host_model_cache_hits_total', 'endpoint, variant', _HOST)}"
            f" / {_rate('halimede_host_model_cache_lookups_total', 'endpoint, variant', _HOST)}"
        },
    ),
    ("Loaded models", "short", {_SHOWN: f"sum by (endpoint, variant) (halimede_host_loaded_models{_HOST})"}),
    ("Backlog of asynchronous requests", "short", {"{{endpoint}}": f"halimede_host_async_backlog{_HOST}"}),
    (
        "Processors of instances",
        "percent",
        {"{{endpoint}} {{instance}}": f"halimede_host_instance_cpu_utilization_percent{_HOST}"},
    ),
]


def dashboard(uid: str, title: str, panels: list[Panel], label: str, metric: str) -> dict[str, Any]:
    """A dashboard as Grafana imports it, with the variables `datasource`, `job` and `label`."""
    source = {"type": "prometheus", "uid": "${datasource}"}

    def variable(name: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "type": "query",
            "datasource": source,
            "query": {"query": query, "refId": name},
            "definition": query,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        }

    return {
        "uid": uid,
        "title": title,
        "tags": ["halimede"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("job", f"label_values({metric}, job)"),
                variable(label, f'label_values({metric}{{job=~"$job"}}, {label})'),
            ]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": name,
                "datasource": source,
                "gridPos": {"h": 8, "w": 12, "x": number % 2 * 12, "y": number // 2 * 8},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + each), "datasource": source, "expr": text, "legendFormat": legend}
                    for each, (legend, text) in enumerate(lines.items())
                ],
            }
            for number, (name, unit, lines) in enumerate(panels)
        ],
    }


DASHBOARDS = {
    "server.json": dashboard("halimede", "Halimede", SERVER, "model", "nv_inference_request_success"),
    "host.json": dashboard(
        "halimede-host", "Halimede host", HOST, "endpoint", "halimede_host_invocations_total"
    ),
}


def main() -> int:
    """0, or 1 if a file is not what would be written."""
    files = {
        DIRECTORY / name: json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        for name, content in DASHBOARDS.items()
    }
    return generated.write(files, "python -m scripts.dashboards")


if __name__ == "__main__":
    sys.exit(main())
