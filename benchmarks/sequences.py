"""Sequences: many at once and iterative ones beside tritonserver, and what many that are silent take."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks import python_models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, pinned
from benchmarks.rival import side_by_side
from benchmarks.sequence_clients import (
    FIRST_ID,
    PLACEHOLDER,
    Client,
    HttpClient,
    StreamClient,
    drive,
    exchange,
    http_templates,
)
from benchmarks.tools import ROOT
from benchmarks.workload import Against, Compare, Sample, Sides, Workload

SEQUENCES = 64
REQUESTS = 50  # to each
CALLERS = 32
STEPS = 128
IDLE = 10_000
IDLE_BYTES = 2048
REAP_MS = 50.0
IDS = count(FIRST_ID)
"""No two sequences have the same."""

Connect = Callable[[Server], list[Client]]


def workloads() -> list[Workload]:
    """Both strategies and iterative sequences beside tritonserver; memory and reap beside fixed limits."""
    oldest = partial(python_models.accumulator, "oldest", SEQUENCES)
    direct = partial(python_models.accumulator, "direct", SEQUENCES)
    stepwise = partial(python_models.stepwise, CALLERS)
    return [
        beside_triton(f"sequences-oldest-grpc-{SEQUENCES}", "requests/s", 2, oldest, streams),
        beside_triton(f"sequences-direct-http-{SEQUENCES}", "requests/s", 1.5, direct, connections),
        beside_triton(f"sequences-iterative-grpc-{CALLERS}", "steps/s", 2, stepwise, callers),
        silent("memory", "bytes a sequence", IDLE_BYTES),
        silent("reap", "ms of the loop", REAP_MS),
    ]


def beside_triton(
    name: str, unit: str, goal: float, repository: Callable[[], Path], connect: Connect
) -> Workload:
    """Both servers on one core with the same model, the clients on another."""

    @contextmanager
    def both(seconds: float) -> Iterator[Sides]:
        server_core, client_core = cores()

        def measure(server: Server) -> Sample:
            with pinned(client_core):
                return drive(connect(server), server, seconds)

        with side_by_side(repository(), measure, server_core) as sides:
            yield sides

    return Workload(name, unit, Compare.AT_LEAST, goal, both, Against.TRITONSERVER)


def streams(server: Server) -> list[Client]:
    """So many sequences at once, each on a gRPC stream, all its requests sent without waiting."""
    sent = exchange("accumulator", numbers(), REQUESTS, total)
    return [StreamClient(server.grpc_port, IDS, sent) for _ in range(SEQUENCES)]


def connections(server: Server) -> list[Client]:
    """So many sequences at once, each on a connection for HTTP, one request after the other."""
    templates = http_templates("accumulator", numbers())
    return [HttpClient(server.http_port, IDS, templates, total) for _ in range(SEQUENCES)]


def callers(server: Server) -> list[Client]:
    """Each has a gRPC stream and asks for so many steps, again and again."""
    sent = exchange("stepwise", [STEPS], STEPS, lambda _: STEPS)
    return [StreamClient(server.grpc_port, IDS, sent) for _ in range(CALLERS)]


def numbers() -> list[int]:
    """What the requests of a sequence hold; the first is replaced by its correlation id."""
    return [PLACEHOLDER, *[1] * (REQUESTS - 1)]


def total(correlation_id: int) -> int:
    """Their sum."""
    return correlation_id + REQUESTS - 1


def silent(figure: str, unit: str, limit: float) -> Workload:
    """Sequences that have had one request each, in a process of its own that prints both figures."""

    def ours() -> Sample:
        command = [sys.executable, "-m", "benchmarks.silent_sequences", str(IDLE)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE)
        if done.returncode:
            raise BenchmarkError(f"{' '.join(command)} ended with code {done.returncode}")
        return Sample(json.loads(done.stdout)[figure])

    @contextmanager
    def both(_seconds: float) -> Iterator[Sides]:
        yield Sides(ours, lambda: Sample(limit))

    return Workload(f"sequences-{IDLE}-idle-{figure}", unit, Compare.AT_MOST, 1, both)
