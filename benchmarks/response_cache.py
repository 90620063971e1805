"""The response cache: hits beside a model that costs next to nothing, and what a miss adds to the same model."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sample, Sides, Workload

HIT_ELEMENTS = 256  # 1 KB of FP32
MISSES = {"1KB": (256, 64, 10.0), "1MB": (262_144, 8, 500.0)}
"""Name → elements, different requests, and CPU time that a miss may add, in µs."""


def workloads() -> list[Workload]:
    """Hits over both protocols at two concurrencies, and misses of two sizes."""
    return [
        *(hits(protocol, concurrency) for protocol in ("http", "grpc") for concurrency in (1, 32)),
        *(misses(name) for name in MISSES),
    ]


def hits(protocol: str, concurrency: int) -> Workload:
    """The same request again and again, beside an identity of ONNX Runtime without the cache."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, (server_core, _) = perf_analyzer(), cores()
        shapes = (f"INPUT0:{HIT_ELEMENTS}",)
        load = Load("cached_identity", protocol, concurrency, seconds, shapes)
        bare = Load("onnx_identity", protocol, concurrency, seconds)
        with (
            halimede(models.cached_identity(), server_core, ["--cache-config=local,size=64MiB"]) as server,
            halimede(models.onnx_identity(), server_core) as identity,
        ):
            yield Sides(partial(apply, tool, load, server), partial(apply, tool, bare, identity))

    return Workload(f"cache-hit-{protocol}-c{concurrency}", "requests/s", Compare.AT_LEAST, 1.0, both)


def misses(name: str) -> Workload:
    """Requests that are never found, as the cache has room for half of them, beside the same server without a cache."""
    elements, count, goal = MISSES[name]

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, (server_core, _) = perf_analyzer(), cores()
        repository = models.cached_identity()
        load = Load("cached_identity", "http", 1, seconds, data=requests(name, elements, count))
        size = count // 2 * (4 * elements + 1000)
        with (
            halimede(repository, server_core, [f"--cache-config=local,size={size}"]) as server,
            halimede(repository, server_core, ["--log-warning=false"]) as without,
        ):
            yield Sides(lambda: cpu(apply(tool, load, server)), lambda: cpu(apply(tool, load, without)))

    return Workload(f"cache-miss-{name}", "µs of CPU", Compare.AT_MOST_MORE, goal, both)


def cpu(sample: Sample) -> Sample:
    """The CPU time of a request as the value."""
    assert sample.cpu_us is not None, "each load is measured with its CPU time"
    return Sample(sample.cpu_us)


def requests(name: str, elements: int, count: int) -> Path:
    """A file of different requests, which perf_analyzer sends in turn."""
    random = np.random.default_rng(0)
    tensors = [random.random(elements, np.float32).tobytes() for _ in range(count)]
    path = models.REPOSITORIES / f"cache-miss-{name}.json"
    entries = [{"INPUT0": {"b64": base64.b64encode(each).decode(), "shape": [elements]}} for each in tensors]
    path.write_text(json.dumps({"data": entries}))
    return path
