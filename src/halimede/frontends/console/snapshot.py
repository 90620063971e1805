"""What the server is doing, as one document: the console and `halimede top` make rates of two of them.

    {"time": 1764300000.123,              seconds since the epoch
     "started": 1764299990.5,             when the server was started: another value means other counters
     "server": {"name", "version", "live", "ready", "control_mode", "loads_on_request",
                "openai": whether it speaks OpenAI's API},
     "process": {"cpu_s", "resident_bytes", "open_files", "cores"},
     "machine": {"memory_bytes", "memory_used_bytes"} or null,
     "memory": {"budget_bytes": null for none, "held_bytes", "loads", "evictions"},
     "cache": {"hits", "misses", "evictions", "entries", "used_bytes", "size_bytes"} or null;
              the last three are null for a cache that is kept elsewhere
     "refused": requests refused as too many were in flight, or null without a limit,
     "traffic": [{"protocol": "http", "in_flight", "connections", "refused_connections": null without a limit,
                  "statuses": {"200": 12}, or {"OK": 12} for gRPC,
                  "client_errors": answers whose status says that the client made a mistake, was refused or gave up}],
     "failures": [{"time": seconds since the epoch, "what", "error"}]: background tasks that ended with an
                 unexpected error, the newest first,
     "bounds": {"duration_us": [...], "batch_size": [...]},
     "models": [MODEL, ...]}

A MODEL is one version with a state, or a model that was never loaded:

    {"name", "version": "1" or "", "namespace": "" for none, "state": "READY" or "", "reason", "memory_bytes",
     "platform", "decoupled", "max_batch_size", "scheduler": "default", "dynamic", "sequence" or "ensemble",
     "cached": whether its responses are cached, "delay_us": the queue delay of the dynamic batcher,
     "pending": requests that wait, "inflight": requests without a final response, "sequences": open ones,
     "instances": [{"name", "device", "place", "state", "requests", "reason", "slow_s"}],
     "counters": {"success", "success_ns", "queue_ns", "compute_input_ns", "compute_infer_ns", "compute_output_ns",
                  "inferences", "executions", "cache_hits", "cache_misses", "tokens", "padding",
                  "failures": {"REJECTED": 0, ...}},
     "nested": the part of these that other requests led to, as steps of ensembles or calls of models:
               {"success", "inflight", "failures": {"REJECTED": 0, ...}, "request_us"},
     "request_us", "queue_us", "compute_us": counts in the buckets of bounds.duration_us, and one more for the rest,
     "batch_size": likewise of bounds.batch_size,
     "closings": {"full": 3, ...}: dynamic batches by why they were closed,
     "last_inference_ms": milliseconds since the epoch, 0 for never,
     "load_s": seconds that it took to load}

Only `READY` versions have the members from "platform" on. Counters and buckets only grow while a version stays loaded;
they begin at 0 when it is loaded again.
"""

import os
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any, Final

import halimede
from halimede.core import tasks
from halimede.engine.cache.local import LocalCache
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.version_states import IndexRow
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import BATCH_SIZE_BOUNDS, DURATION_BOUNDS_US
from halimede.frontends.gauges import memory_bytes
from halimede.frontends.grpc.transport.responses import status_name
from halimede.frontends.steps_of_work import in_steps
from halimede.frontends.traffic import Traffic, is_client_error
from halimede.frontends.traffic_metrics import open_files, resident_memory

Document = dict[str, Any]

_BOUNDS: Final = {"duration_us": DURATION_BOUNDS_US, "batch_size": BATCH_SIZE_BOUNDS}

_ROWS_A_STEP: Final = 8


class Snapshots:
    """Makes snapshots of one server. Nothing is counted for them: they read what is counted anyway."""

    def __init__(
        self, engine: Engine, server_id: str, traffic: Sequence[Traffic], *, openai: bool = False
    ) -> None:
        self._engine = engine
        self._traffic = traffic
        self._started = time.time()
        self._server_id = server_id
        self._openai = openai

    def take(self) -> Generator[None, None, Document]:
        """The document as of now, in steps, as there may be thousands of models."""
        engine = self._engine
        lifecycle = engine.lifecycle
        mode = engine.settings.control_mode
        ledger = lifecycle.memory.ledger
        return {
            "time": time.time(),
            "started": self._started,
            "server": {
                "name": self._server_id,
                "version": halimede.__version__,
                "live": lifecycle.live,
                "ready": lifecycle.ready,
                "control_mode": mode.value,
                "loads_on_request": mode.takes_requests,
                "openai": self._openai,
            },
            "process": {
                "cpu_s": time.process_time(),
                "resident_bytes": next((value for _, value in resident_memory()), None),
                "open_files": next((value for _, value in open_files()), None),
                "cores": os.cpu_count(),
            },
            "machine": _machine(),
            "memory": {
                "budget_bytes": ledger.budget,
                "held_bytes": ledger.total,
                "loads": lifecycle.memory.loads,
                "evictions": lifecycle.memory.evictions,
            },
            "cache": self._cache(),
            "refused": None if engine.inflight is None else engine.inflight.refused,
            "traffic": [_traffic(each) for each in self._traffic],
            "failures": [asdict(each) for each in tasks.FAILURES.latest],
            "bounds": _BOUNDS,
            "models": (yield from self._models()),
        }

    def _cache(self) -> Document | None:
        cache = self._engine.lifecycle.cache
        if cache is None:
            return None
        counts = cache.counts
        local = cache if isinstance(cache, LocalCache) else None
        return {
            "hits": counts.hits,
            "misses": counts.misses,
            "evictions": counts.evictions,
            "entries": None if local is None else len(local),
            "used_bytes": None if local is None else local.used,
            "size_bytes": None if local is None else local.size,
        }

    def _models(self) -> Generator[None, None, list[Document]]:
        lifecycle = self._engine.lifecycle
        if not lifecycle.live:
            return []
        held = Counter[tuple[str, int]]()
        for holding in lifecycle.memory.ledger:
            held[holding.name, holding.version] += holding.total
        loaded = {(model.identifier, str(model.version)): model for model in lifecycle.loaded_models()}
        rows = yield from in_steps(lifecycle.index(), lambda row: self._row(row, loaded, held), _ROWS_A_STEP)
        return rows

    @staticmethod
    def _row(
        row: IndexRow, loaded: dict[tuple[str, str], ServedModel], held: Counter[tuple[str, int]]
    ) -> Document:
        identifier = f"{row.namespace}::{row.name}" if row.namespace else row.name
        document: Document = {
            "name": row.name,
            "version": row.version or "",
            "namespace": row.namespace,
            "state": row.state,
            "reason": row.reason,
            "memory_bytes": held[identifier, int(row.version)] if row.version else 0,
        }
        model = loaded.get((identifier, row.version or ""))
        if model is not None:
            document.update(_loaded(model))
        return document


def _loaded(model: ServedModel) -> Document:
    counts, config = model.statistics, model.config
    return {
        "platform": config.platform or config.backend,
        "decoupled": model.signature.decoupled,
        "max_batch_size": config.max_batch_size,
        "scheduler": _scheduler(model),
        "cached": config.response_cache.enable,
        "delay_us": config.dynamic_batching.max_queue_delay_microseconds,
        "pending": model.pending,
        "inflight": model.inflight,
        "sequences": model.sequences,
        "instances": [asdict(each) for each in model.activity()],
        "counters": {
            "success": counts.success.count,
            "success_ns": counts.success.ns,
            "queue_ns": counts.queue.ns,
            "compute_input_ns": counts.compute_input.ns,
            "compute_infer_ns": counts.compute_infer.ns,
            "compute_output_ns": counts.compute_output.ns,
            "inferences": counts.inference_count,
            "executions": counts.execution_count,
            "cache_hits": counts.cache_hit.count,
            "cache_misses": counts.cache_miss.count,
            "tokens": counts.tokens,
            "padding": counts.padding,
            "failures": {reason.value: number for reason, number in counts.failures.items()},
        },
        "nested": {
            "success": counts.nested.success,
            "inflight": counts.nested.inflight,
            "failures": {reason.value: number for reason, number in counts.nested.failures.items()},
            "request_us": counts.nested.request_us.counts,
        },
        "request_us": counts.request_us.counts,
        "queue_us": counts.queue_us.counts,
        "compute_us": counts.compute_us.counts,
        "batch_size": counts.batch_size.counts,
        "closings": {reason.value: number for reason, number in counts.closings.items()},
        "last_inference_ms": counts.last_inference_ms,
        "load_s": counts.load_ns / 1e9,
    }


def _scheduler(model: ServedModel) -> str:
    config = model.config
    if config.HasField("ensemble_scheduling"):
        return "ensemble"
    if config.HasField("sequence_batching"):
        return "sequence"
    return "dynamic" if config.HasField("dynamic_batching") else "default"


def _traffic(traffic: Traffic) -> Document:
    protocol = traffic.protocol
    statuses = Counter[int]()
    client_errors = 0
    for (route, status), number in traffic.counts.items():
        statuses[status] += number
        client_errors += number * is_client_error(protocol, route, status)
    name = status_name if protocol == "grpc" else str
    return {
        "protocol": protocol,
        "in_flight": traffic.in_flight,
        "connections": traffic.open,
        "refused_connections": traffic.refused,
        "statuses": {name(status): number for status, number in sorted(statuses.items())},
        "client_errors": client_errors,
    }


def _machine() -> Document | None:
    memory = memory_bytes()
    return None if memory is None else {"memory_bytes": memory[0], "memory_used_bytes": memory[1]}
