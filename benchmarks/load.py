"""Load from perf_analyzer on a server, and what it cost the server."""

import csv
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, pinned
from benchmarks.tools import PerfAnalyzer
from benchmarks.workload import Sample

WINDOWS = 3  # perf_analyzer averages over its last three


@dataclass(frozen=True, slots=True)
class Load:
    """What perf_analyzer sends.

    Attributes:
        model: the model asked.
        protocol: "http" or "grpc".
        concurrency: requests under way at any time.
        seconds: how long it measures.
        shapes: `name:dims` for inputs of variable size.
        client_cores: cores that it may use; its own core by default.
    """

    model: str
    protocol: str
    concurrency: int
    seconds: float
    shapes: Sequence[str] = ()
    client_cores: frozenset[int] = frozenset()


def apply(tool: PerfAnalyzer, load: Load, server: Server) -> Sample:
    """Requests a second, and the server's CPU time for each.

    Raises:
        BenchmarkError: perf_analyzer failed; its own output says why.
    """
    port = server.http_port if load.protocol == "http" else server.grpc_port
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.csv"
        command: list[str | Path] = [tool.program, "-m", load.model, "-i", load.protocol]
        command += ["-u", f"127.0.0.1:{port}", "--concurrency-range", str(load.concurrency)]
        # Any spread between windows is accepted: rounds show it, and every run then takes the same time.
        command += ["-p", str(round(load.seconds * 1000 / WINDOWS)), "-r", str(WINDOWS), "-s", "10000"]
        command += ["-f", report]
        for shape in load.shapes:
            command += ["--shape", shape]
        requests, cpu = server.requests_served(load.model), server.cpu_seconds()
        environment = {**os.environ, "LD_LIBRARY_PATH": str(tool.libraries)}
        with pinned(load.client_cores or cores()[1]):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        requests, cpu = server.requests_served(load.model) - requests, server.cpu_seconds() - cpu
        if run.returncode or not report.exists():
            raise BenchmarkError(f"perf_analyzer ended with {run.returncode}:\n{run.stdout}\n{run.stderr}")
        with report.open(newline="") as file:
            [line] = csv.DictReader(file)
    return Sample(float(line["Inferences/Second"]), cpu / requests * 1e6)
