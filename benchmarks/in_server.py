"""Python models in the server's interpreter (`isolation: none`), beside tritonserver and beside ONNX Runtime."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import models, python_models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.python_backend import opener
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Against, Compare, Sides, Workload

GOALS = {1: 1.5, 8: 2.0, 32: 2.0}
"""Beside tritonserver, by the number of requests at a time."""

BATCHING = "max_batch_size: 32\ndynamic_batching { }\n"
"""As the identity of ONNX Runtime has it."""

ONNX_GOAL = 0.85
PIPELINE_GOAL = 3.0


def workloads() -> list[Workload]:
    """FP32 [16] through an identity, an ensemble of three, and a model that calls another three times."""
    rows = [beside_triton(protocol, count) for protocol in ("http", "grpc") for count in GOALS]
    rows += [beside_onnx(protocol, count) for protocol in ("http", "grpc") for count in GOALS]
    ensemble = partial(python_models.ensemble, python_models.IN_SERVER)
    three_calls = partial(python_models.three_calls, python_models.IN_SERVER)
    for name, model, repository in (("ensemble", "ensemble", ensemble), ("bls", "three_calls", three_calls)):
        for count in (1, 16):
            opening = opener(repository, partial(Load, model, "http", count), apply)
            title = f"in-server-{name}-http-c{count}"
            rows.append(
                Workload(title, "requests/s", Compare.AT_LEAST, PIPELINE_GOAL, opening, Against.TRITONSERVER)
            )
    return rows


def beside_triton(protocol: str, concurrency: int) -> Workload:
    """The identity here and behind tritonserver, which runs it in a process."""
    repository = partial(python_models.identity, further=python_models.IN_SERVER)
    opening = opener(repository, partial(Load, "identity", protocol, concurrency), apply)
    name = f"in-server-{protocol}-c{concurrency}"
    goal = GOALS[concurrency]
    return Workload(name, "requests/s", Compare.AT_LEAST, goal, opening, Against.TRITONSERVER)


def beside_onnx(protocol: str, concurrency: int) -> Workload:
    """The identity in Python and in ONNX Runtime, both here."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        tool, (server_core, _) = perf_analyzer(), cores()
        repository = python_models.identity(further=python_models.IN_SERVER + BATCHING)
        python, onnx = (Load(name, protocol, concurrency, seconds) for name in ("identity", "onnx_identity"))
        with (
            halimede(repository, server_core) as server,
            halimede(models.onnx_identity(), server_core) as other,
        ):
            yield Sides(partial(apply, tool, python, server), partial(apply, tool, onnx, other))

    name = f"in-server-onnx-{protocol}-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, ONNX_GOAL, both)
