"""Models of the Python backend, here and behind tritonserver: tensors, pipelines and streams."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import python_models
from benchmarks.latency import median_latency
from benchmarks.load import Load, apply
from benchmarks.processes import Server, cores
from benchmarks.rival import side_by_side
from benchmarks.tools import PerfAnalyzer, perf_analyzer
from benchmarks.workload import Against, Compare, Sample, Sides, Workload

LARGE = {"600KB": 150_000, "10MB": 2_500_000}  # elements of FP32
STRINGS = 10_000
RESPONSES = 1000  # of the decoupled model to each request
ONE_AT_A_TIME = 0.6  # of tritonserver's median
LONGER = 3  # so few of its requests are done in a second that counting whole ones would blur the figure

Measurement = Callable[[PerfAnalyzer, Load, Server], Sample]


def workloads() -> list[Workload]:
    """Servers on one core and clients on another; small tensors also with all of them on all cores."""
    rows = [
        row for shared in (False, True) for protocol in ("http", "grpc") for row in small(protocol, shared)
    ]
    rows += [watching(protocol) for protocol in ("http", "grpc")]
    rows += [
        large(name, protocol, concurrency)
        for name in LARGE
        for protocol in ("http", "grpc")
        for concurrency in (1, 4)
    ]
    rows += [strings(concurrency) for concurrency in (1, 4)]
    rows += [pipeline("ensemble", "ensemble", python_models.ensemble, count) for count in (1, 16)]
    rows += [pipeline("bls", "three_calls", python_models.three_calls, count) for count in (1, 4)]
    rows.append(decoupled())
    return rows


def small(protocol: str, shared: bool) -> list[Workload]:
    """FP32 [16]: the latency of one request at a time, the rate of 8 and 32."""
    name = f"python-{protocol}-c{{}}" + ("-all-cores" if shared else "")
    load = partial(Load, "identity", protocol)
    one = opener(python_models.identity, partial(load, 1), median_latency, shared)
    goals = (ONE_AT_A_TIME, None, None) if shared else (ONE_AT_A_TIME, 1.3, 0.8)
    against = Against.TRITONSERVER
    return [
        Workload(name.format(1), "µs, median", Compare.AT_MOST, goals[0], one, against),
        *(
            Workload(
                name.format(concurrency),
                "requests/s",
                Compare.AT_LEAST,
                goals[1],
                opener(python_models.identity, partial(load, concurrency), apply, shared),
                against,
                goals[2],
            )
            for concurrency in (8, 32)
        ),
    ]


def watching(protocol: str) -> Workload:
    """One request at a time on all cores, as above, while the server and the worker watch for each other's messages."""
    load = partial(Load, "identity", protocol, 1)
    opening = opener(python_models.identity, load, median_latency, shared=True, own=["--busy-wait=100"])
    name = f"python-{protocol}-c1-all-cores-watching"
    return Workload(name, "µs, median", Compare.AT_MOST, None, opening, Against.TRITONSERVER)


def large(size: str, protocol: str, concurrency: int) -> Workload:
    """Many elements both ways. Over gRPC, perf_analyzer's own core is the limit, so CPU time is what counts."""
    load = partial(Load, "identity", protocol, concurrency, shapes=(f"INPUT0:{LARGE[size]}",))
    return Workload(
        f"python-{size}-{protocol}-c{concurrency}",
        "requests/s",
        Compare.AT_LEAST,
        1.3 if protocol == "http" else None,
        opener(any_length, load, apply),
        Against.TRITONSERVER,
        0.6 if protocol == "grpc" else None,
    )


def any_length() -> Path:
    """The identity of FP32 tensors of any length."""
    return python_models.identity(dims=-1)


def strings(concurrency: int) -> Workload:
    """A BYTES tensor both ways."""

    def load(seconds: float) -> Load:
        data = python_models.strings(STRINGS)
        return Load("identity", "http", concurrency, seconds, data=data)

    repository = partial(python_models.identity, "TYPE_STRING", STRINGS)
    opening = opener(repository, load, apply)
    name = f"python-strings-http-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, 1.5, opening, Against.TRITONSERVER)


def pipeline(name: str, model: str, repository: Callable[[], Path], concurrency: int) -> Workload:
    """FP32 [16] through a model that hands it to others."""
    opening = opener(repository, partial(Load, model, "http", concurrency), apply)
    name = f"{name}-http-c{concurrency}"
    return Workload(name, "requests/s", Compare.AT_LEAST, 1.5, opening, Against.TRITONSERVER)


def decoupled() -> Workload:
    """A gRPC stream with one request at a time, each of which brings many small responses."""

    def load(seconds: float) -> Load:
        options, data = ("--streaming", "--async"), python_models.number(RESPONSES)
        return Load("counter", "grpc", 1, seconds * LONGER, data=data, options=options)

    def responses(tool: PerfAnalyzer, load: Load, server: Server) -> Sample:
        requests = apply(tool, load, server)
        assert requests.cpu_us is not None
        return Sample(requests.value * RESPONSES, requests.cpu_us / RESPONSES)

    opening = opener(python_models.counter, load, responses)
    name = f"decoupled-{RESPONSES}-responses"
    return Workload(name, "responses/s", Compare.AT_LEAST, 2, opening, Against.TRITONSERVER)


def opener(
    repository: Callable[[], Path],
    load: Callable[[float], Load],
    measurement: Measurement,
    shared: bool = False,
    own: Sequence[str] = (),
) -> Callable[[float], AbstractContextManager[Sides]]:
    """Both servers on the same core or, shared, on all cores with the client; `own`: arguments of this server."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        everything = os.sched_getaffinity(0)
        server_cores, client_cores = (everything, everything) if shared else cores()
        placed = replace(load(seconds), client_cores=frozenset(client_cores))
        measure = partial(measurement, perf_analyzer(), placed)
        with side_by_side(repository(), measure, server_cores, own=own) as sides:
            yield sides

    return both
