"""How long it takes to load and to unload a model that does nothing, through the HTTP API."""

import http.client
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from benchmarks import python_models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, pinned
from benchmarks.rival import side_by_side
from benchmarks.workload import Against, Compare, Sample, Sides, Workload

GOAL = 0.2
MIN_CYCLES = 3
ENDS_WITHIN_S = 60
POLL_S = 0.001
VERBS = ("load", "unload")
MODEL = "identity"


def workloads() -> list[Workload]:
    """The one and the other."""
    return [
        Workload(f"python-{verb}", "ms", Compare.AT_MOST, GOAL, opener(verb), Against.TRITONSERVER)
        for verb in VERBS
    ]


def opener(verb: str) -> Callable[[float], AbstractContextManager[Sides]]:
    """Both servers with a repository of one model, of which none is loaded at first."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        server_core, client_core = cores()
        measure = partial(median_time, verb, seconds)
        arguments = ["--model-control-mode=explicit"]
        with (
            side_by_side(python_models.identity(), measure, server_core, arguments) as sides,
            pinned(client_core),
        ):
            yield sides

    return both


def median_time(verb: str, seconds: float, server: Server) -> Sample:
    """The median over cycles that go on for so long, in ms."""
    times: list[float] = []
    started, cpu = time.monotonic(), server.cpu_seconds()
    with closing(
        http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=ENDS_WITHIN_S)
    ) as connection:
        while len(times) < MIN_CYCLES or time.monotonic() - started < seconds:
            cycle = dict(zip(VERBS, (load(connection), unload(connection)), strict=True))
            times.append(cycle[verb] * 1e3)
    return Sample(statistics.median(times), (server.cpu_seconds() - cpu) / len(times) * 1e6)


def load(connection: http.client.HTTPConnection, model: str = MODEL) -> float:
    """Load the model; the seconds until the answer, which comes when it is ready."""
    started = time.perf_counter()
    post(connection, f"models/{model}/load")
    took = time.perf_counter() - started
    if state(connection) != "READY":
        raise BenchmarkError("The model is not ready after it was loaded")
    return took


def unload(connection: http.client.HTTPConnection, model: str = MODEL) -> float:
    """Unload the model; the seconds until the index has it as unavailable."""
    started = time.perf_counter()
    post(connection, f"models/{model}/unload")
    while state(connection) != "UNAVAILABLE":
        if time.perf_counter() - started > ENDS_WITHIN_S:
            raise BenchmarkError(f"The model is not unloaded within {ENDS_WITHIN_S} s")
        time.sleep(POLL_S)
    return time.perf_counter() - started


def state(connection: http.client.HTTPConnection) -> str:
    """The model's state in the index; "" if it has none."""
    [model] = json.loads(post(connection, "index"))
    return str(model.get("state", ""))


def post(connection: http.client.HTTPConnection, path: str) -> bytes:
    """The body of the answer; anything but 200 ends the benchmark."""
    connection.request("POST", f"/v2/repository/{path}")
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise BenchmarkError(f"{path} failed with {answer.status}: {body.decode(errors='replace')}")
    return body
