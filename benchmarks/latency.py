"""The latency of one request at a time, as perf_analyzer sees it."""

import csv
import subprocess
import tempfile
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.load import Load, command
from benchmarks.processes import Server, process
from benchmarks.tools import PerfAnalyzer
from benchmarks.workload import Sample

WINDOWS = 3  # perf_analyzer calls nothing stable before
ANY_SPREAD = 1_000_000  # percent between the windows
ENDS_WITHIN_S = 30


def median_latency(tool: PerfAnalyzer, load: Load, server: Server) -> Sample:
    """The median over the measured time, in µs, and the server's CPU time for a request.

    Raises:
        BenchmarkError: perf_analyzer failed; its own output says why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.csv"
        arguments = [*command(tool, load, server), "-p", str(round(load.seconds * 1000 / WINDOWS))]
        arguments += ["-s", str(ANY_SPREAD), "--max-trials", str(WINDOWS), "-f", str(report)]
        requests, cpu = server.requests_served(load.model), server.cpu_seconds()
        with process(
            arguments, load.cores, env=tool.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            try:
                output, _ = client.communicate(timeout=load.seconds + ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                raise BenchmarkError("perf_analyzer does not end") from None
        requests, cpu = server.requests_served(load.model) - requests, server.cpu_seconds() - cpu
        if client.returncode or not report.exists():
            raise BenchmarkError(f"perf_analyzer failed:\n{output.decode(errors='replace')}")
        with report.open(newline="") as lines:
            [figures] = csv.DictReader(lines)
    return Sample(float(figures["p50 latency"]), cpu / requests * 1e6)
