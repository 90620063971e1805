"""A server that makes room by itself: memory over many loads, and how often a model that is asked for is there."""

import http.client
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, halimede
from benchmarks.workload import Compare, Sample, Sides, Workload

MODELS = 50
ROOM = 10
LOADS = 1000
REQUESTS = 2000
WEIGHTS_MB = 8
MEMORY_GOAL = 1.1
HITS_GOAL = 1.0


def workloads() -> list[Workload]:
    """Both; each is measured once a round, however many seconds that takes."""
    return [
        Workload(f"memory over {LOADS} evictions", "MB", Compare.AT_MOST, MEMORY_GOAL, memory_over_evictions),
        Workload("hits on a Zipf trace", "% of requests", Compare.AT_LEAST, HITS_GOAL, hits),
    ]


@contextmanager
def memory_over_evictions(_seconds: float) -> Iterator[Sides]:
    """Resident memory after each request of many has had a model loaded; the limit: after the first of each."""
    before = 0.0

    def ours() -> Sample:
        nonlocal before
        with served() as server, closing(connect(server)) as connection:
            ask_each(connection, range(MODELS))
            before = server.resident_mb()
            ask_each(connection, [number % MODELS for number in range(LOADS)])
            after = server.resident_mb()
            if (loads := server.counter("halimede_model_loads_total")) != MODELS + LOADS:
                raise BenchmarkError(f"{loads} models were loaded, and should have been {MODELS + LOADS}")
            return Sample(after)

    yield Sides(ours, lambda: Sample(before))


@contextmanager
def hits(_seconds: float) -> Iterator[Sides]:
    """The share of requests whose model was there, at popularities as 1/rank; the limit: a simulated LRU cache."""
    random = np.random.default_rng(0)
    popularity = 1 / np.arange(1, MODELS + 1)
    trace = random.choice(MODELS, REQUESTS, p=popularity / popularity.sum()).tolist()

    def ours() -> Sample:
        with served() as server, closing(connect(server)) as connection:
            ask_each(connection, trace)
            loads = server.counter("halimede_model_loads_total")
            return Sample(100 * (REQUESTS - loads) / REQUESTS)

    yield Sides(ours, lambda: Sample(100 * simulated_hits(trace, ROOM) / REQUESTS))


def simulated_hits(trace: Sequence[int], room: int) -> int:
    """How many requests of the trace find their model among the last `room` different ones."""
    there: OrderedDict[int, None] = OrderedDict()
    found = 0
    for number in trace:
        if number in there:
            found += 1
        elif len(there) == room:
            there.popitem(last=False)
        there[number] = None
        there.move_to_end(number)
    return found


@contextmanager
def served() -> Iterator[Server]:
    """A server with room for so many of the models, and for half of another one."""
    budget = f"{(ROOM + 0.5) * WEIGHTS_MB:g}MB"
    arguments = ["--model-control-mode=ondemand", f"--model-memory-budget={budget}", "--log-warning=false"]
    with halimede(models.numbered("eviction", MODELS, WEIGHTS_MB), arguments=arguments) as server:
        yield server


def connect(server: Server) -> http.client.HTTPConnection:
    """A connection to the server."""
    return http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)


def ask_each(connection: http.client.HTTPConnection, numbers: Sequence[int]) -> None:
    """Send a request to each of the models, one after the other, and see that the answer is right."""
    for number in numbers:
        inputs = [
            {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [1, 2]},
            {"name": "index", "shape": [1], "datatype": "INT64", "data": [number]},
        ]
        connection.request("POST", f"/v2/models/m{number}/infer", json.dumps({"inputs": inputs}))
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or json.loads(body)["outputs"][0]["data"] != [1 + number, 2 + number]:
            raise BenchmarkError(f"m{number} answers {answer.status} {body.decode(errors='replace')}")
