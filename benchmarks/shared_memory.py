"""Tensors in system shared memory of clients: a Python model here and behind tritonserver, and ONNX Runtime."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import models, python_models
from benchmarks.load import Load, apply
from benchmarks.processes import cores, halimede
from benchmarks.python_backend import LARGE, any_length
from benchmarks.resnet import bare_loop
from benchmarks.rival import tritonserver
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Against, Compare, Sides, Workload

IDENTITY_GOAL = 1.5
FLAT_GOAL = 0.8
SESSION_GOAL = 0.95
BYTES_OF_FP32 = 4
ALLOWED = ("--allow-client-shm=true",)


def workloads() -> list[Workload]:
    """The Python identity beside tritonserver's; a model that looks at nothing; a session on the same data."""
    return [
        *(
            Workload(
                f"shm-python-600KB-{protocol}-c{concurrency}",
                "requests/s",
                Compare.AT_LEAST,
                IDENTITY_GOAL,
                partial(beside_tritonserver, protocol, concurrency),
                Against.TRITONSERVER,
            )
            for protocol in ("http", "grpc")
            for concurrency in (1, 4)
        ),
        Workload("shm-untouched-10MB-http", "requests/s", Compare.AT_LEAST, FLAT_GOAL, large_beside_small),
        *(
            Workload(
                name, "requests/s", Compare.AT_LEAST, SESSION_GOAL, partial(beside_the_session, isolation)
            )
            for name, isolation in (
                ("shm-onnx-10MB-http", "thread"),
                ("shm-onnx-10MB-http-process", "process"),
            )
        ),
    ]


def in_regions(size: int) -> tuple[str, ...]:
    """Options of perf_analyzer: inputs and outputs are in shared memory, outputs of so many bytes."""
    return ("--shared-memory", "system", "--output-shared-memory-size", str(size))


def load_of(model: str, elements: int, protocol: str, concurrency: int) -> Callable[[float], Load]:
    """FP32 of so many elements."""
    options = in_regions(elements * BYTES_OF_FP32)
    return partial(Load, model, protocol, concurrency, shapes=(f"INPUT0:{elements}",), options=options)


@contextmanager
def beside_tritonserver(protocol: str, concurrency: int, seconds: float) -> Iterator[Sides]:
    """600 KB both ways through a Python model, here and in tritonserver, where regions are always allowed."""
    load = load_of("identity", LARGE["600KB"], protocol, concurrency)(seconds)
    measure, (server_core, _) = partial(apply, perf_analyzer(), load), cores()
    repository = any_length()
    with halimede(repository, server_core, ALLOWED) as ours, tritonserver(repository, server_core) as theirs:
        yield Sides(partial(measure, ours), partial(measure, theirs))


@contextmanager
def large_beside_small(seconds: float) -> Iterator[Sides]:
    """10 MB to a model that does not look at them; beside it, 600 KB."""
    repository = python_models.untouched()
    server_core, _ = cores()
    with halimede(repository, server_core, ALLOWED) as server:
        large, small = (load_of("untouched", LARGE[size], "http", 1)(seconds) for size in ("10MB", "600KB"))
        yield Sides(
            partial(apply, perf_analyzer(), large, server), partial(apply, perf_analyzer(), small, server)
        )


@contextmanager
def beside_the_session(isolation: str, seconds: float) -> Iterator[Sides]:
    """10 MB through a dense layer, isolated in that way; beside it, the bare session in a loop, on the same core."""
    repository, shape = models.dense(isolation), (models.DENSE_ROWS, models.DENSE_COLUMNS)
    server_core, _ = cores()
    name = repository.name
    load = Load(
        name,
        "http",
        1,
        seconds,
        options=in_regions(models.DENSE_ROWS * models.DENSE_UNITS * BYTES_OF_FP32),
    )
    model = repository / name / "1" / "model.onnx"
    with halimede(repository, server_core, ALLOWED) as server:
        yield Sides(
            partial(apply, perf_analyzer(), load, server),
            lambda: bare_loop(model, server_core, 1, "INPUT0", shape, seconds),
        )
