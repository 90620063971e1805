"""What front-end processes bring to small requests, and what they cost."""

import http.client
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models, python_models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, halimede
from benchmarks.tls import ELEMENTS, MODEL, load, request
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.core.process_tree import tree

FRONT_ENDS = 2
CONNECTIONS = 64
LARGE_CONNECTIONS = 8
ENGINE_GOAL_US = 12
LARGE_ENGINE_GOAL_US = 25
CPU_GOAL = 1.25
RATE_GOAL = 1.3
LATENCY_GOAL_US = 60
IDLE_GOAL_MS = 0.5
AT_START = 4
START_GOAL_S = 0.7
FLOAT_BYTES = 4
SIZES = {"600KB": 3 * 224 * 224, "10MB": 2_500_000}
"""Name of a size → how many floats."""

_TOOL = "h2load"


def workloads() -> list[Workload]:
    """Both protocols: the rate beside one process, and what the server's own process takes for a request."""
    missing = "" if shutil.which(_TOOL) else _TOOL
    rows = []
    for protocol in ("http", "grpc"):
        rows += [
            Workload(
                f"front-ends-{protocol}-c{CONNECTIONS}",
                "requests/s",
                Compare.AT_LEAST,
                RATE_GOAL,
                partial(beside_one_process, protocol),
                cpu_goal=CPU_GOAL,
                missing=missing,
            ),
            Workload(
                f"front-ends-{protocol}-engine",
                "µs of CPU",
                Compare.AT_MOST,
                1.0,
                partial(own_process, protocol),
                missing=missing,
            ),
        ]
    rows += [
        Workload(
            f"front-ends-{size}-engine",
            "µs of CPU",
            Compare.AT_MOST,
            1.0,
            partial(large_tensors, elements),
            missing=missing,
        )
        for size, elements in SIZES.items()
    ]
    return [
        *rows,
        Workload("front-ends-c1", "µs", Compare.AT_MOST_MORE, LATENCY_GOAL_US, one_at_a_time),
        Workload("front-ends-idle", "ms of CPU a second", Compare.AT_MOST_MORE, IDLE_GOAL_MS, idle),
        Workload("front-ends-start", "s", Compare.AT_MOST, 1.0, start),
    ]


@contextmanager
def beside_one_process(protocol: str, seconds: float) -> Iterator[Sides]:
    """With front ends, and with one process; the client shares all cores with either."""
    with measuring(protocol, seconds) as measure:
        repository = models.onnx_identity()
        with (
            halimede(repository, None, [f"--front-ends={FRONT_ENDS}"]) as several,
            halimede(repository) as one,
        ):
            yield Sides(partial(measure, several), partial(measure, one))


@contextmanager
def own_process(protocol: str, seconds: float) -> Iterator[Sides]:
    """The CPU time of the server's own process for a request, and what it may be."""
    with (
        measuring(protocol, seconds) as measure,
        halimede(models.onnx_identity(), None, [f"--front-ends={FRONT_ENDS}"]) as server,
    ):

        def sample() -> Sample:
            served, cpu = server.requests_served(MODEL), own_cpu_ns(server)
            measure(server)
            served, cpu = server.requests_served(MODEL) - served, own_cpu_ns(server) - cpu
            return Sample(cpu / served / 1e3)

        yield Sides(sample, lambda: Sample(ENGINE_GOAL_US))


@contextmanager
def large_tensors(elements: int, seconds: float) -> Iterator[Sides]:
    """The CPU time of the server's own process for a tensor that goes to a Python model and back."""
    described, tensor = identity_request((elements,))
    headers = ["-H", f"inference-header-content-length: {len(described)}"]
    with (
        tempfile.TemporaryDirectory() as scratch,
        halimede(python_models.identity(dims=-1), None, [f"--front-ends={FRONT_ENDS}"]) as server,
    ):
        body = Path(scratch) / "body"
        body.write_bytes(described.encode() + tensor)
        arguments = ["--h1", *headers, "-d", str(body), "/v2/models/identity/infer"]

        def sample() -> Sample:
            served, cpu = server.requests_served("identity"), own_cpu_ns(server)
            load("http", LARGE_CONNECTIONS, seconds, arguments, server, pin=False, model="identity")
            served, cpu = server.requests_served("identity") - served, own_cpu_ns(server) - cpu
            return Sample(cpu / served / 1e3)

        yield Sides(sample, lambda: Sample(LARGE_ENGINE_GOAL_US))


@contextmanager
def one_at_a_time(seconds: float) -> Iterator[Sides]:
    """The median latency of one small request at a time, with front ends and with one process."""
    repository = models.onnx_identity()

    def sample(server: Server) -> Sample:
        return Sample(statistics.median(repeated(server, MODEL, (1, ELEMENTS), seconds)) * 1e6)

    with halimede(repository, None, [f"--front-ends={FRONT_ENDS}"]) as several, halimede(repository) as one:
        yield Sides(partial(sample, several), partial(sample, one))


@contextmanager
def idle(seconds: float) -> Iterator[Sides]:
    """The CPU time of all processes while nothing is asked, with front ends and with one process."""
    repository = models.onnx_identity()

    def sample(server: Server) -> Sample:
        cpu = cpu_ns(server)
        time.sleep(seconds)
        return Sample((cpu_ns(server) - cpu) / seconds / 1e6)

    with halimede(repository, None, [f"--front-ends={FRONT_ENDS}"]) as several, halimede(repository) as one:
        yield Sides(partial(sample, several), partial(sample, one))


@contextmanager
def start(_seconds: float) -> Iterator[Sides]:
    """From the start of the process until it answers that it is ready, and what that may take."""
    repository = models.onnx_identity()

    def sample() -> Sample:
        started = time.monotonic()
        with halimede(repository, None, [f"--front-ends={AT_START}"]):
            return Sample(time.monotonic() - started)

    yield Sides(sample, lambda: Sample(START_GOAL_S))


def repeated(server: Server, model: str, shape: tuple[int, ...], seconds: float) -> list[float]:
    """The latency of each of the requests over HTTP that are sent one after the other for so long, in seconds.

    Raises:
        BenchmarkError: one failed.
    """
    described, tensor = identity_request(shape)
    body = described.encode() + tensor
    headers = {"Inference-Header-Content-Length": str(len(described))}
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    took: list[float] = []
    end = time.monotonic() + seconds
    while (began := time.perf_counter()) and time.monotonic() < end:
        connection.request("POST", f"/v2/models/{model}/infer", body, headers)
        response = connection.getresponse()
        answer = response.read()
        took.append(time.perf_counter() - began)
        if response.status != 200:
            raise BenchmarkError(f"{model}: {response.status} {answer.decode(errors='replace')}")
    connection.close()
    return took


@contextmanager
def measuring(protocol: str, seconds: float) -> Iterator[Callable[[Server], Sample]]:
    """What loads a server from as many connections as there are, and counts."""
    with tempfile.TemporaryDirectory() as scratch:
        yield partial(load, protocol, CONNECTIONS, seconds, request(protocol, Path(scratch)), pin=False)


def identity_request(shape: tuple[int, ...]) -> tuple[str, bytes]:
    """The JSON of a request of FP32 for the same in bytes, and the bytes that follow it."""
    tensor = bytes(FLOAT_BYTES * shape[-1])
    given: dict[str, Any] = {"name": "INPUT0", "datatype": "FP32", "shape": shape}
    given["parameters"] = {"binary_data_size": len(tensor)}
    wanted = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    return json.dumps({"inputs": [given], "outputs": [wanted]}), tensor


def own_cpu_ns(server: Server) -> int:
    """CPU time of the server's own process, in nanoseconds."""
    return _cpu_ns(server.child.pid)


def cpu_ns(server: Server) -> int:
    """CPU time of it and of all processes below it, in nanoseconds."""
    return sum(_cpu_ns(one.pid) for one in tree(server.child.pid))


def _cpu_ns(pid: int) -> int:
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total
