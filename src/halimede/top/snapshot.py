"""What a server has counted so far, in one form for all sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str, str]
"""Namespace, name and version of a model."""


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """One version of a model. Counts only grow while it stays loaded.

    Attributes:
        key: namespace, name and version.
        state: `READY`, `LOADING`, ...; empty if it was never loaded.
        reason: why it is in that state, if it failed.
        requests: that succeeded.
        failures: requests that failed.
        cancelled: requests that their clients cancelled; None if the server counts them as failures.
        inferences: rows.
        executions: batches.
        cache_hits: requests that the cache answered.
        request_ns, queue_ns, compute_ns: time of all requests together; compute includes input and output.
        buckets: requests by their time: counts in the buckets of `Snapshot.bounds_us`, and one more for the rest.
        pending: requests that wait; None if the server does not say.
        inflight: requests without a final response; None if the server does not say.
        busy, instances: instances that work, and all; None if the server does not say.
        memory: bytes that it holds; None if the server does not say.
    """

    key: Key
    state: str
    reason: str = ""
    requests: int = 0
    failures: int = 0
    cancelled: int | None = None
    inferences: int = 0
    executions: int = 0
    cache_hits: int = 0
    request_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    buckets: Sequence[int] = ()
    pending: int | None = None
    inflight: int | None = None
    busy: int | None = None
    instances: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server at a time.

    Attributes:
        time: in seconds; only differences count.
        server: name and version of the server.
        ready: it takes requests.
        started: in seconds since the epoch; None if the server does not say.
        cpu_s: CPU time of its process; None if the server does not say.
        resident: bytes of memory of its process; None if the server does not say.
        budget: bytes that models may hold; None for no limit.
        connections: open ones, by protocol.
        statuses: answers by protocol and status.
        bounds_us: upper bounds of the buckets of times.
        models: by namespace, name and version.
    """

    time: float
    server: str
    ready: bool
    started: float | None = None
    cpu_s: float | None = None
    resident: int | None = None
    budget: int | None = None
    connections: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[tuple[str, str], int] = field(default_factory=dict)
    bounds_us: Sequence[float] = ()
    models: Mapping[Key, ModelFigures] = field(default_factory=dict)


def of_console(document: Mapping[str, Any]) -> Snapshot:
    """The snapshot in a document of `/v2/console/snapshot`.

    Raises:
        KeyError, TypeError, ValueError: it has another form.
    """
    server, process = document["server"], document["process"]
    models = [_console_model(each) for each in document["models"]]
    return Snapshot(
        float(document["time"]),
        f"{server['name']} {server['version']}",
        bool(server["ready"]),
        document["started"],
        process["cpu_s"],
        process["resident_bytes"],
        document["memory"]["budget_bytes"],
        {each["protocol"]: each["connections"] for each in document["traffic"]},
        {
            (each["protocol"], status): count
            for each in document["traffic"]
            for status, count in each["statuses"].items()
        },
        document["bounds"]["duration_us"],
        {model.key: model for model in models},
    )


def _console_model(document: Mapping[str, Any]) -> ModelFigures:
    key = (document["namespace"], document["name"], document["version"])
    if "counters" not in document:
        return ModelFigures(key, document["state"], document["reason"], memory=document["memory_bytes"])
    counters, instances = document["counters"], document["instances"]
    failures = dict(counters["failures"])
    cancelled = failures.pop("CANCELED")
    return ModelFigures(
        key,
        document["state"],
        document["reason"],
        counters["success"],
        sum(failures.values()),
        cancelled,
        counters["inferences"],
        counters["executions"],
        counters["cache_hits"],
        counters["success_ns"],
        counters["queue_ns"],
        sum(counters[f"compute_{part}_ns"] for part in ("input", "infer", "output")),
        document["request_us"],
        document["pending"],
        document["inflight"],
        sum(each["state"] == "running" for each in instances),
        len(instances),
        document["memory_bytes"],
    )


def of_statistics(
    time: float, server: str, index: Sequence[Mapping[str, Any]], statistics: Sequence[Mapping[str, Any]]
) -> Snapshot:
    """The snapshot in the repository index and the statistics of any server with Triton's routes.

    Raises:
        KeyError, TypeError, ValueError: they have another form.
    """
    models = {
        key: ModelFigures(key, each.get("state", ""), each.get("reason", ""))
        for each in index
        for key in [("", each["name"], str(each.get("version", "")))]
    }
    for each in statistics:
        key = ("", each["name"], str(each["version"]))
        state = models[key].state if key in models else "READY"
        models[key] = _statistics_model(key, state, each)
    return Snapshot(time, server, ready=True, models=models)


def _statistics_model(key: Key, state: str, document: Mapping[str, Any]) -> ModelFigures:
    parts = document["inference_stats"]

    def ns(*names: str) -> int:
        return sum(int(parts.get(name, {}).get("ns", 0)) for name in names)

    def count(name: str) -> int:
        return int(parts.get(name, {}).get("count", 0))

    return ModelFigures(
        key,
        state,
        "",
        count("success"),
        count("fail"),
        None,
        int(document["inference_count"]),
        int(document["execution_count"]),
        count("cache_hit"),
        ns("success"),
        ns("queue"),
        ns("compute_input", "compute_infer", "compute_output"),
    )
