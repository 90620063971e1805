"""Tracing into a file, of one in a thousand requests and of each, beside the same server without tracing."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sides, Workload

GOALS = {1000: 0.98, 1: 0.75}
"""One of how many requests is traced → the share of the rate without tracing that is to be reached."""


def workloads() -> list[Workload]:
    """Small requests over both protocols."""
    return [
        workload(protocol, rate, concurrency)
        for rate in GOALS
        for protocol in ("http", "grpc")
        for concurrency in (1, 32)
    ]


def workload(protocol: str, rate: int, concurrency: int) -> Workload:
    """FP32 [16] through an identity of ONNX Runtime."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, (server_core, _) = perf_analyzer(), cores()
        load = Load("onnx_identity", protocol, concurrency, seconds)
        with (
            TemporaryDirectory() as directory,
            halimede(
                models.onnx_identity(), server_core, to_file(Path(directory) / "trace.json", rate)
            ) as traced,
            halimede(models.onnx_identity(), server_core) as plain,
        ):
            yield Sides(partial(apply, tool, load, traced), partial(apply, tool, load, plain))

    name = f"traced-{'each' if rate == 1 else f'1-of-{rate}'}-file-{protocol}-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, GOALS[rate], both)


def to_file(path: Path, rate: int) -> list[str]:
    """The flags that trace one of so many requests into a file."""
    return [
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=rate={rate}",
        f"--trace-config=triton,file={path}",
    ]
