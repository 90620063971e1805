"""What each stage of a request costs, and what that lets expect of larger machines.

The CPU time of a request comes from the processes' own counters while nobody looks; its shares come from a profile that
the server takes of itself under the same load.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import models, python_models, report
from benchmarks.errors import BenchmarkError
from benchmarks.expectation import Costs, expect, rate
from benchmarks.in_server import BATCHING
from benchmarks.processes import TICKS_PER_SECOND, Server, cores, halimede, process
from benchmarks.tls import request
from benchmarks.workload import Compare, Result, Sample, Sides, Workload
from halimede.core.process_tree import tree
from halimede.frontends.profiling.sampler import program
from halimede.frontends.profiling.stages import STAGES

FRONT_ENDS: Final = 2
PROFILES: Final = 3  # times the length of a measurement, for enough samples
STARTS_WITHIN_S: Final = 30
WARM_UP_S: Final = 0.7
FRONT_END: Final = "front ends"
WORKER: Final = "instances"
RATE: Final = "rate"
CORES: Final = (2, 4, 16, 64)
COMPUTING: Final = ("http", "python")
COMPUTING_MS: Final = (1, 10)
"""So long a model in a process computes in further rows of what to expect."""

_TOOL: Final = "h2load"


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that are measured.

    Attributes:
        name: part of the rows' names.
        model: which is asked.
        repository: makes the models.
        shape: of the FP32 tensor that goes both ways.
        connections: how many there are, with one request at a time each.
        protocols: over which.
    """

    name: str
    model: str
    repository: Callable[[], Path]
    shape: Sequence[int]
    connections: int = 64
    protocols: Sequence[str] = ("http", "grpc")


KINDS: Final = (
    Kind("onnx", "onnx_identity", models.onnx_identity, (1, 16)),
    Kind("python", "identity", python_models.identity, (16,)),
    Kind("python-batched", "identity", partial(python_models.identity, further=BATCHING), (1, 16)),
    Kind("python-600KB", "identity", partial(python_models.identity, dims=-1), (150_000,), 8, ("http",)),
)


def workloads() -> list[Workload]:
    """A row for each kind of requests and protocol, with one process and with front ends."""
    missing = "" if shutil.which(_TOOL) else _TOOL
    missing = missing if program() else "py-spy (pip install 'halimede[profile]')"
    return [
        Workload(
            row_name(protocol, kind.name, front_ends),
            "µs of CPU",
            Compare.AT_MOST,
            None,
            partial(sides, kind, protocol, front_ends),
            missing=missing,
        )
        for kind in KINDS
        for protocol in kind.protocols
        for front_ends in (1, FRONT_ENDS)
    ]


def row_name(protocol: str, kind: str, front_ends: int) -> str:
    """The name of a row."""
    return f"stages-{protocol}-{kind}" + ("-front-ends" if front_ends > 1 else "")


@contextmanager
def sides(kind: Kind, protocol: str, front_ends: int, seconds: float) -> Iterator[Sides]:
    """The server's own process: its CPU time for a request, and the same while a profile is taken."""
    with halimede(
        kind.repository(), server_cores(), ["--profile=true", f"--front-ends={front_ends}"]
    ) as server:
        shares: dict[str, float] = {}

        def profiled() -> Sample:
            nonlocal shares
            with sending(kind, protocol, server):
                shares, sample = with_profile(kind.model, server, seconds * PROFILES)
            return sample

        def plain() -> Sample:
            if not shares:
                profiled()
            with sending(kind, protocol, server):
                sample = counted(kind.model, server, lambda: time.sleep(seconds))
            parts = {stage: share * sample.value for stage, share in shares.items()}
            return Sample(sample.value, sample.cpu_us, {**parts, **sample.parts})

        yield Sides(plain, profiled)


def server_cores() -> set[int]:
    """All cores but that of the client, if there are others."""
    return os.sched_getaffinity(0) - cores()[1] or cores()[0]


@contextmanager
def sending(kind: Kind, protocol: str, server: Server) -> Iterator[None]:
    """The load is on the server meanwhile, and warm.

    Raises:
        BenchmarkError: nothing is sent, or the client ended.
    """
    with tempfile.TemporaryDirectory() as scratch:
        *options, path = request(protocol, Path(scratch), kind.model, kind.shape)
        port = server.http_port if protocol == "http" else server.grpc_port
        command = [_TOOL, "-t", "1", "-c", str(kind.connections), "-D", "1h", *options]
        before = server.requests_served(kind.model)
        with process(
            [*command, f"http://127.0.0.1:{port}{path}"],
            cores()[1],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as client:
            deadline = time.monotonic() + STARTS_WITHIN_S
            while server.requests_served(kind.model) == before:
                if client.poll() is not None or time.monotonic() > deadline:
                    raise BenchmarkError(f"{_TOOL} sends nothing")
                time.sleep(0.05)
            time.sleep(WARM_UP_S)
            yield
            if client.poll() is not None:
                raise BenchmarkError(f"{_TOOL} ended with code {client.returncode}")
            client.kill()


def with_profile(model: str, server: Server, seconds: float) -> tuple[dict[str, float], Sample]:
    """The stages' shares of the own process's time, and its CPU time for a request meanwhile."""
    answer: list[bytes] = []
    body = json.dumps({"seconds": max(1, round(seconds)), "format": "json"}).encode()

    sample = counted(model, server, lambda: answer.append(ask(server, body)))
    return dict(json.loads(answer[0])["stages"]), sample


def ask(server: Server, body: bytes) -> bytes:
    """A profile as JSON."""
    status, text, _ = server.request("POST", "/v2/debug/profile", body)
    if status != 200:
        raise BenchmarkError(f"The server takes no profile: {text.decode(errors='replace')}")
    return text


def counted(model: str, server: Server, wait: Callable[[], None]) -> Sample:
    """CPU times for a request while `wait` waits."""
    began, requests, before = time.monotonic(), server.requests_served(model), ticks(server)
    wait()
    requests, after = server.requests_served(model) - requests, ticks(server)
    seconds = time.monotonic() - began
    if not requests:
        raise BenchmarkError("No request was answered")
    spent = {name: (after[name] - before[name]) / TICKS_PER_SECOND / requests * 1e6 for name in after}
    own = spent.pop("")
    return Sample(own, own + sum(spent.values()), {**spent, RATE: requests / seconds})


def ticks(server: Server) -> dict[str, int]:
    """CPU time of the server's own process (""), its front ends and its other processes, in clock ticks."""
    found = {"": 0, FRONT_END: 0, WORKER: 0}
    for number, one in enumerate(tree(server.child.pid)):
        found["" if number == 0 else kind_of(one.pid)] += one.cpu_ticks
    return found


def kind_of(pid: int) -> str:
    """What a process below the server is."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return WORKER
    return FRONT_END if name.startswith("halimede-front") else WORKER


# What is printed beside the usual table


def tables(results: Sequence[Result]) -> str:
    """The stages of each row, and what to expect; "" without such rows."""
    found = {result.workload.name: medians(result) for result in results if result.ours[0].parts}
    if not found:
        return ""
    return f"{stages_table(found)}\n\n{expectation_table(found)}".rstrip()


def medians(result: Result) -> dict[str, float]:
    """The median of each part over the rounds; "own": of the own process."""
    names = result.ours[0].parts
    parts = {name: statistics.median(sample.parts[name] for sample in result.ours) for name in names}
    return {**parts, "own": statistics.median(sample.value for sample in result.ours)}


def stages_table(found: dict[str, dict[str, float]]) -> str:
    """µs of CPU by stage and process, a line for each row."""
    headings = ["CPU µs/request", *STAGES, "own process", FRONT_END, WORKER]
    rows = [headings]
    for name, parts in found.items():
        cells = [parts[stage] for stage in STAGES] + [parts["own"], parts[FRONT_END], parts[WORKER]]
        rows.append([name, *(f"{cell:,.1f}" for cell in cells)])
    return report.aligned(rows)


def expectation_table(found: dict[str, dict[str, float]]) -> str:
    """What to expect of machines with more cores, for each kind that was measured with and without front ends.

    Of models in processes also if their requests compute for so long in them.
    """
    rows = [["requests/s", "here: measured", "expected", *(f"{count} cores" for count in CORES)]]
    for kind in KINDS:
        for protocol in kind.protocols:
            name = row_name(protocol, kind.name, 1)
            alone, relayed = found.get(name), found.get(row_name(protocol, kind.name, FRONT_ENDS))
            if alone is None or relayed is None:
                continue
            here = [f"{alone[RATE]:,.0f}", f"{rate(costs(alone), len(server_cores()), 1, 1)[0]:,.0f}"]
            rows.append([name, *here, *expectations(costs(alone), costs(relayed))])
            if (protocol, kind.name) == COMPUTING:
                rows += [
                    [
                        f"{name} + {extra:g} ms",
                        "",
                        "",
                        *expectations(costs(alone, extra), costs(relayed, extra)),
                    ]
                    for extra in COMPUTING_MS
                ]
    return report.aligned(rows) if len(rows) > 1 else ""


def expectations(alone: Costs, relayed: Costs) -> list[str]:
    """The best setting for each number of cores: rate, processes and limit."""
    cells = []
    for count in CORES:
        best = expect(alone, relayed, count)
        setting = [f"{best.front_ends} front ends"] if best.front_ends > 1 else []
        setting += [f"{best.instances} instance{'s' * (best.instances > 1)}"] if best.instances else []
        cells.append(f"{best.rate:,.0f} ({', '.join([*setting, best.limit])})")
    return cells


def costs(parts: dict[str, float], compute_ms: float = 0) -> Costs:
    """What a request costs in each process, if it computes for so long in that of the model."""
    worker = parts[WORKER]
    worker = worker if worker > 1 else 0  # below, it is no model's
    return Costs(parts["own"], parts[FRONT_END], worker + 1000 * compute_ms)
