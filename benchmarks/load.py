"""Load from perf_analyzer on a server, and what it cost the server.

perf_analyzer only sends the load, in one window that never ends. Its own figures would need it to collect what its
threads recorded while they go on, for which, on one core with many threads, it may not get the time.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, process
from benchmarks.tools import PerfAnalyzer
from benchmarks.workload import Sample

ENDLESS_MS = 10_000_000
STARTS_WITHIN_S = 30
WARM_UP_S = 0.7


@dataclass(frozen=True, slots=True)
class Load:
    """What perf_analyzer sends.

    Attributes:
        model: the model asked.
        protocol: "http" or "grpc".
        concurrency: requests under way at any time.
        seconds: how long it measures.
        shapes: `name:dims` for inputs of variable size.
        data: a directory with a file of raw bytes for each input; random bytes are sent without.
        options: more arguments for perf_analyzer.
        client_cores: cores that it may use; its own core by default.
    """

    model: str
    protocol: str
    concurrency: int
    seconds: float
    shapes: Sequence[str] = ()
    data: Path | None = None
    options: Sequence[str] = ()
    client_cores: frozenset[int] = frozenset()

    @property
    def cores(self) -> set[int]:
        """Where perf_analyzer runs."""
        return set(self.client_cores) or cores()[1]


def command(tool: PerfAnalyzer, load: Load, server: Server) -> list[str]:
    """The command line of perf_analyzer, without how long it measures."""
    port = server.http_port if load.protocol == "http" else server.grpc_port
    arguments = [str(tool.program), "-m", load.model, "-i", load.protocol, "-u", f"127.0.0.1:{port}"]
    arguments += ["--concurrency-range", str(load.concurrency), *load.options]
    for shape in load.shapes:
        arguments += ["--shape", shape]
    if load.data is not None:
        arguments += ["--input-data", str(load.data)]
    return arguments


@contextmanager
def sending(tool: PerfAnalyzer, load: Load, server: Server) -> Iterator[None]:
    """The load is on the server meanwhile, and warm.

    Raises:
        BenchmarkError: perf_analyzer failed; its own output says why.
    """
    arguments = [*command(tool, load, server), "-p", str(ENDLESS_MS)]
    with (
        tempfile.TemporaryFile() as output,
        process(
            arguments, load.cores, env=tool.environment, stdout=output, stderr=subprocess.STDOUT
        ) as client,
    ):
        before = server.requests_served(load.model)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while server.requests_served(load.model) == before:
            if client.poll() is not None or time.monotonic() > deadline:
                output.seek(0)
                raise BenchmarkError(
                    f"perf_analyzer sends nothing:\n{output.read().decode(errors='replace')}"
                )
            time.sleep(0.05)
        time.sleep(WARM_UP_S)
        yield
        client.kill()


def apply(tool: PerfAnalyzer, load: Load, server: Server) -> Sample:
    """Requests a second, and the server's CPU time for each.

    Raises:
        BenchmarkError: perf_analyzer failed; its own output says why.
    """
    with sending(tool, load, server):
        began, requests, cpu = time.monotonic(), server.requests_served(load.model), server.cpu_seconds()
        time.sleep(load.seconds)
        requests, cpu = server.requests_served(load.model) - requests, server.cpu_seconds() - cpu
        seconds = time.monotonic() - began
    if not requests:
        raise BenchmarkError(f"perf_analyzer got no answer within {load.seconds} s")
    return Sample(requests / seconds, cpu / requests * 1e6)
