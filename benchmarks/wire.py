"""Transport workloads: a model that costs nothing, behind this server and behind its bare transport."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import echo, models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sides, Workload

LARGE_ELEMENTS = 2_500_000  # 10 MB of FP32


def workloads() -> list[Workload]:
    """Small tensors at three concurrencies and 10 MB ones at two, over both protocols."""
    return [
        *(
            workload(f"identity-{protocol}-c{concurrency}", 0.6, small(protocol, concurrency))
            for protocol in ("http", "grpc")
            for concurrency in (1, 8, 32)
        ),
        *(
            workload(f"10MB-{protocol}-c{concurrency}", 0.85, large(protocol, concurrency))
            for protocol in ("http", "grpc")
            for concurrency in (1, 4)
        ),
    ]


def small(protocol: str, concurrency: int) -> Callable[[float], Load]:
    """FP32 [16] through ONNX Runtime."""
    return partial(Load, "onnx_identity", protocol, concurrency)


def large(protocol: str, concurrency: int) -> Callable[[float], Load]:
    """10 MB through the identity backend."""
    return partial(Load, "large_identity", protocol, concurrency, shapes=(f"INPUT0:{LARGE_ELEMENTS}",))


def workload(name: str, goal: float, load_for: Callable[[float], Load]) -> Workload:
    """This server against its own transport echoing the same bytes."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, load = perf_analyzer(), load_for(seconds)
        repository, shape = specimen(load.model)
        server_core, _ = cores()
        with halimede(repository, server_core) as server:
            recording = echo.record(server, load.model, shape)
            with echo.serve(recording, server_core) as bare:
                yield Sides(partial(apply, tool, load, server), partial(apply, tool, load, bare))

    return Workload(name, "requests/s", Compare.AT_LEAST, goal, both)


def specimen(model: str) -> tuple[Path, list[int]]:
    """The model's repository, and the shape of the tensors that it is asked with."""
    if model == "onnx_identity":
        return models.onnx_identity(), [1, 16]
    return models.large_identity(), [LARGE_ELEMENTS]
