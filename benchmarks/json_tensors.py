"""Tensors as JSON both ways, through a Python model, here and behind tritonserver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks import models, python_models
from benchmarks.connections import Call, connected, exchange, percentile, rate
from benchmarks.processes import Server, cores, halimede, pinned
from benchmarks.rival import side_by_side
from benchmarks.workload import Against, Compare, Sample, Sides, Workload

ELEMENTS = 50_000
IMAGE = 3 * 224 * 224
CONCURRENCY = 2
MANY = 2_000_000
NEIGHBOUR_GOAL_MS = 5.0


def workloads() -> list[Workload]:
    """Numbers, integers of 64 bits and strings."""
    random = np.random.default_rng(0)
    integers = np.iinfo(np.int64)
    tensors: dict[str, tuple[str, Callable[[], list[Any]]]] = {
        "fp32": ("FP32", lambda: random.random(IMAGE, np.float32).tolist()),
        "int64": ("INT64", lambda: random.integers(integers.min, integers.max, ELEMENTS).tolist()),
        "bytes": ("BYTES", lambda: [each.decode() for each in python_models.words(ELEMENTS)]),
    }
    return [
        *(tensor(name, *what) for name, what in tensors.items()),
        Workload("json-neighbour-p99", "ms", Compare.AT_MOST_MORE, NEIGHBOUR_GOAL_MS, neighbour),
    ]


def tensor(name: str, datatype: str, elements: Callable[[], list[Any]]) -> Workload:
    """One large tensor in a request and in its response."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        data = elements()
        kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        given = {"name": "INPUT0", "datatype": datatype, "shape": [len(data)], "data": data}
        body = orjson.dumps({"inputs": [given]})

        def measure(server: Server) -> Sample:
            call = Call(server.http_port, "/v2/models/identity/infer", {}, body)
            return rate(server, call, CONCURRENCY, seconds)

        server_core, client_core = cores()
        repository: Path = python_models.identity(kind, dims=-1)
        with side_by_side(repository, measure, server_core) as sides, pinned(client_core):
            yield sides

    return Workload(f"json-{name}-http", "requests/s", Compare.AT_LEAST, 2, both, Against.TRITONSERVER)


@contextmanager
def neighbour(seconds: float) -> Iterator[Sides]:
    """The slowest in a hundred small requests, beside a client of 40 MB of JSON each way and without that client."""
    with halimede(models.large_identity()) as server:

        def slowest() -> Sample:
            return percentile(server, call(server, 3), 99, seconds)

        def beside() -> Sample:
            other = get_context("spawn").Process(target=send_for_ever, args=(call(server, MANY),))
            other.start()
            try:
                return slowest()
            finally:
                other.kill()
                other.join()

        yield Sides(beside, slowest)


def call(server: Server, count: int) -> Call:
    """A request with so many numbers as JSON, which come back so."""
    data = np.random.default_rng(0).random(count)
    given = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": data}
    body = orjson.dumps({"inputs": [given]}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Call(server.http_port, "/v2/models/large_identity/infer", {}, body)


def send_for_ever(request: Call) -> None:
    """Send the request, again and again."""
    message = request.message
    with connected(request) as connection:
        while True:
            exchange(connection, message)
