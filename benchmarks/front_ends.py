"""What front-end processes bring to small requests, and what they cost."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import models
from benchmarks.process_tree import look
from benchmarks.processes import TICKS_PER_SECOND, Server, halimede
from benchmarks.tls import MODEL, load, request
from benchmarks.workload import Compare, Sample, Sides, Workload

FRONT_ENDS = 2
CONNECTIONS = 64
ENGINE_GOAL_US = 12
CPU_GOAL = 1.25
RATE_GOAL = 1.3

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
    return rows


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
            served, ticks = server.requests_served(MODEL), own_ticks(server)
            measure(server)
            served, ticks = server.requests_served(MODEL) - served, own_ticks(server) - ticks
            return Sample(ticks / TICKS_PER_SECOND / served * 1e6)

        yield Sides(sample, lambda: Sample(ENGINE_GOAL_US))


@contextmanager
def measuring(protocol: str, seconds: float) -> Iterator[Callable[[Server], Sample]]:
    """What loads a server from as many connections as there are, and counts."""
    with tempfile.TemporaryDirectory() as scratch:
        yield partial(load, protocol, CONNECTIONS, seconds, request(protocol, Path(scratch)), pin=False)


def own_ticks(server: Server) -> int:
    """CPU time of the server's own process, in clock ticks."""
    found = look(server.child.pid)
    assert found is not None, "the server runs"
    return found.cpu_ticks
