"""Each framework's speed and memory behind this server, beside its bare call."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.connections import Call, median_time, rate
from benchmarks.errors import BenchmarkError
from benchmarks.frameworks.framework import FRAMEWORKS, Framework, Size
from benchmarks.frameworks.inputs import numbers
from benchmarks.frameworks.loop import MODEL, bare_loop, configured
from benchmarks.load import Load, apply
from benchmarks.models import REPOSITORIES
from benchmarks.processes import Server, cores, halimede, pinned
from benchmarks.repository_control import load, unload
from benchmarks.tools import perf_analyzer
from benchmarks.workload import Compare, Sample, Sides, Workload

CONCURRENCY = 4
THROUGHPUT_GOAL = 0.95
ADDED_GOAL_US = 250
FIRST_CYCLES, CYCLES = 10, 100
MEMORY_GOAL = 1.1
SETTLE_S = 1.0
SMALL_BATCH = 8
PAUSE_S = 0.0002
"""Between the calls that a request one by one is held against: after a pause, the same call takes longer."""

TREES_CONCURRENCY = 32
TREES_BATCH = 1024
TREES_GOAL = 15_000
TREES_SHARE = 0.7
ROWS = 1000


def workloads() -> list[Workload]:
    """Up to three rows a framework; for trees, one with many single rows besides."""
    rows = [row for framework in FRAMEWORKS.values() for row in rows_of(framework)]
    trees = FRAMEWORKS["fil"]
    name = f"frameworks-fil-c{TREES_CONCURRENCY}"
    rows.append(Workload(name, "rows/s", Compare.AT_LEAST, 1, single_rows, missing=trees.missing))
    return rows


def rows_of(framework: Framework) -> list[Workload]:
    """Throughput, latency and memory; of a model that is never small, throughput."""
    name, missing = f"frameworks-{framework.name}", framework.missing
    measured = partial(throughput, framework)
    rates = Workload(
        f"{name}-c{CONCURRENCY}", "rows/s", Compare.AT_LEAST, THROUGHPUT_GOAL, measured, missing=missing
    )
    if not framework.has_small:
        return [rates]
    return [
        rates,
        Workload(
            f"{name}-latency",
            "µs, median",
            Compare.AT_MOST_MORE,
            ADDED_GOAL_US,
            partial(latency, framework),
            missing=missing,
        ),
        Workload(
            f"{name}-memory",
            "MB",
            Compare.AT_MOST,
            MEMORY_GOAL,
            partial(memory, framework),
            once=True,
            missing=missing,
        ),
    ]


@contextmanager
def throughput(framework: Framework, seconds: float) -> Iterator[Sides]:
    """Requests of as many rows as the bare call is fastest with, on one core; the client is on another."""
    server_core, client_core = cores()
    with bare_loop(framework, Size.LARGE, server_core) as bare:
        batch = bare.fastest(framework.batches)
        repository = configured(framework, Size.LARGE, batch)
        with halimede(repository, server_core) as server, pinned(client_core):
            call = request(framework, Size.LARGE, server, batch)

            def ours() -> Sample:
                requests = rate(server, call, CONCURRENCY, seconds)
                assert requests.cpu_us is not None
                return Sample(requests.value * batch, requests.cpu_us / batch)

            def limit() -> Sample:
                figures = bare.measure(batch, seconds)
                return Sample(figures.rate, figures.cpu_us)

            yield Sides(ours, limit)


@contextmanager
def latency(framework: Framework, seconds: float) -> Iterator[Sides]:
    """One request of one row at a time, over one connection; the limit: the bare call on a row, every now and then."""
    server_core, client_core = cores()
    repository = configured(framework, Size.SMALL, SMALL_BATCH)
    with (
        bare_loop(framework, Size.SMALL, server_core) as bare,
        halimede(repository, server_core) as server,
        pinned(client_core),
    ):
        call = request(framework, Size.SMALL, server, 1)

        def limit() -> Sample:
            figures = bare.measure(1, seconds, PAUSE_S)
            return Sample(figures.median_us, figures.cpu_us)

        yield Sides(lambda: median_time(server, call, seconds), limit)


@contextmanager
def memory(framework: Framework, _seconds: float) -> Iterator[Sides]:
    """Resident memory of all processes after many cycles of load, one request and unload; the limit: after a few."""
    before = 0.0
    repository = configured(framework, Size.LARGE, SMALL_BATCH)
    with halimede(repository, arguments=["--model-control-mode=explicit"]) as server:
        call = request(framework, Size.LARGE, server, 1)

        def ours() -> Sample:
            nonlocal before
            before = cycles(server, call, FIRST_CYCLES)
            return Sample(cycles(server, call, CYCLES - FIRST_CYCLES))

        yield Sides(ours, lambda: Sample(before))


def cycles(server: Server, call: Call, count: int) -> float:
    """Load, ask and unload the model so often; the resident memory a moment later, in MB."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=120)) as connection:
        for _ in range(count):
            load(connection, MODEL)
            connection.request("POST", call.path, call.body, call.headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise BenchmarkError(f"The model answers {answer.status} {body.decode(errors='replace')}")
            unload(connection, MODEL)
    time.sleep(SETTLE_S)
    return server.resident_mb_of_all()


@contextmanager
def single_rows(seconds: float) -> Iterator[Sides]:
    """100 trees on 16 features, one row a request, many requests at a time.

    The limit is what is asked: a fixed rate or, if that is lower, a share of the bare loop's on single rows, in which
    the faster of XGBoost itself and ONNX Runtime on the same trees predicts.
    """
    trees = FRAMEWORKS["fil"]
    server_core, _ = cores()
    repository = configured(trees, Size.SMALL, TREES_BATCH)
    with bare_loop(trees, Size.SMALL, server_core) as bare, halimede(repository, server_core) as server:
        load = Load(MODEL, "http", TREES_CONCURRENCY, seconds, data=many_rows(trees))

        def limit() -> Sample:
            return Sample(min(TREES_GOAL, TREES_SHARE * bare.measure(1, seconds).rate))

        yield Sides(partial(apply, perf_analyzer(), load, server), limit)


def many_rows(framework: Framework) -> Path:
    """A file for perf_analyzer, with a row for each of many requests."""
    path = REPOSITORIES / f"{framework.name}-rows.json"
    rows = numbers(ROWS, *framework.input.dims).tolist()
    path.write_text(json.dumps({"data": [{framework.input.name: row} for row in rows]}))
    return path


def request(framework: Framework, size: Size, server: Server, rows: int) -> Call:
    """A binary request with so many rows."""
    data = framework.rows(size, rows)
    tensor = {
        "name": framework.input.name,
        "shape": data.shape,
        "datatype": framework.input.datatype,
        "parameters": {"binary_data_size": data.nbytes},
    }
    outputs = [{"name": framework.output.name, "parameters": {"binary_data": True}}]
    header = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    length = {"Inference-Header-Content-Length": str(len(header))}
    return Call(server.http_port, f"/v2/models/{MODEL}/infer", length, header + data.tobytes())
