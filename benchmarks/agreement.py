"""`halimede bench` and perf_analyzer measure the same server in turn; `python -m benchmarks.agreement`.

Both measure with the same options. Of each workload the medians over all rounds are compared: throughput, mean latency
and p50. The p99 is shown, and not judged: it differs between two runs of one program, too. Exit status 1: a figure
differs by more than the tolerance.
"""

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from benchmarks import models
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Server, cores, halimede, pinned
from benchmarks.tools import ROOT, PerfAnalyzer, perf_analyzer

OUTPUT = ROOT / "build" / "agreement.json"
JUDGED = ("requests/s", "mean µs", "p50 µs")
SHOWN = (*JUDGED, "p99 µs")
_MEAN = re.compile(r"Avg latency: (\d+) usec")
Figures = dict[str, float]


class Row(TypedDict):
    """The medians of both programs for one workload, and by which share ours differ."""

    name: str
    perf_analyzer: Figures
    bench: Figures
    difference: Figures


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Attributes:
        name: what `--only` selects it by.
        repository: of its model.
        model: its name.
        options: of both programs, beside model, address and windows.
        grpc: over gRPC, otherwise over HTTP.
    """

    name: str
    repository: Path
    model: str
    options: tuple[str, ...]
    grpc: bool = False


def delayed(milliseconds: int) -> Path:
    """`delayed`: FP32 [16] through the identity backend, which takes so long for each request."""
    config = f"""backend: "identity"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
parameters {{ key: "execute_delay_ms" value {{ string_value: "{milliseconds}" }} }}
"""
    return models.repository("delayed", config)


def cases() -> Iterator[Case]:
    """The workloads."""
    slow = delayed(20)
    yield Case("delayed-http-c4", slow, "delayed", ("--concurrency-range", "4"))
    yield Case("delayed-grpc-c1", slow, "delayed", ("--concurrency-range", "1"), grpc=True)
    yield Case("delayed-grpc-rate-25", slow, "delayed", ("--request-rate-range", "25"), grpc=True)
    yield Case("resnet50-http-c2", models.resnet50(), "resnet50", ("--concurrency-range", "2"))
    yield Case("resnet50-grpc-c1", models.resnet50(), "resnet50", ("--concurrency-range", "1"), grpc=True)


def main() -> None:
    """Measure, print the table, and write a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="workloads whose name contains it")
    parser.add_argument("--rounds", type=int, default=5, help="of each workload (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="length of a window (default %(default)s)")
    parser.add_argument("--tolerance", type=float, default=3, metavar="PERCENT", help="default %(default)s")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file (default %(default)s)")
    arguments = parser.parse_args()
    tool = perf_analyzer()
    rows, differs = [], []
    try:
        for case in cases():
            if arguments.only and not any(part in case.name for part in arguments.only):
                continue
            row = compared(tool, case, arguments.rounds, arguments.seconds)
            rows.append(row)
            print_row(row)
            differs += [
                f"{case.name}: {figure} differs by {row['difference'][figure]:+.1%}"
                for figure in JUDGED
                if abs(row["difference"][figure]) > arguments.tolerance / 100
            ]
    except BenchmarkError as error:
        sys.exit(str(error))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(rows, indent=2))
    print("\n".join(differs) or f"All figures agree within {arguments.tolerance:g} %.")
    sys.exit(bool(differs))


def compared(tool: PerfAnalyzer, case: Case, rounds: int, seconds: float) -> Row:
    """The medians of both programs, in turn."""
    theirs: list[Figures] = []
    ours: list[Figures] = []
    server_cores, client_cores = cores()
    with halimede(case.repository, server_cores) as server, pinned(client_cores):
        for number in range(rounds):
            turns = [(theirs, of_perf_analyzer), (ours, of_bench)]
            for found, measure in turns if number % 2 else reversed(turns):
                found.append(measure(tool, case, server, seconds))
    medians = [
        {name: statistics.median(each[name] for each in side) for name in SHOWN} for side in (theirs, ours)
    ]
    return {
        "name": case.name,
        "perf_analyzer": medians[0],
        "bench": medians[1],
        "difference": {name: medians[1][name] / medians[0][name] - 1 for name in SHOWN},
    }


def of_perf_analyzer(tool: PerfAnalyzer, case: Case, server: Server, seconds: float) -> Figures:
    """What perf_analyzer finds.

    Raises:
        BenchmarkError: it failed; the text is what it wrote.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "figures.csv"
        command = [str(tool.program), *arguments_of(case, server, seconds), "-f", str(file)]
        done = subprocess.run(command, env=tool.environment, capture_output=True, text=True)
        if done.returncode or not file.exists():
            raise BenchmarkError(f"perf_analyzer failed:\n{done.stdout}{done.stderr}")
        [line] = csv.DictReader(file.read_text().splitlines())
    mean = _MEAN.search(done.stdout)
    if mean is None:
        raise BenchmarkError(f"perf_analyzer tells no mean latency:\n{done.stdout}")
    return {
        "requests/s": float(line["Inferences/Second"]),
        "mean µs": float(mean[1]),
        "p50 µs": float(line["p50 latency"]),
        "p99 µs": float(line["p99 latency"]),
    }


def of_bench(_tool: PerfAnalyzer, case: Case, server: Server, seconds: float) -> Figures:
    """What `halimede bench` finds.

    Raises:
        BenchmarkError: it failed; the text is what it wrote.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "halimede", "bench", *arguments_of(case, server, seconds)]
        done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
        if done.returncode:
            raise BenchmarkError(f"halimede bench failed:\n{done.stdout}{done.stderr}")
        [level] = json.loads(file.read_text())["levels"]
    latency = level["latency_ms"]
    return {
        "requests/s": level["requests_per_second"],
        "mean µs": latency["mean"] * 1000,
        "p50 µs": latency["p50"] * 1000,
        "p99 µs": latency["p99"] * 1000,
    }


def arguments_of(case: Case, server: Server, seconds: float) -> Sequence[str]:
    """What both programs are given."""
    port = server.grpc_port if case.grpc else server.http_port
    protocol = "grpc" if case.grpc else "http"
    given = ["-m", case.model, "-u", f"127.0.0.1:{port}", "-i", protocol, *case.options]
    return [*given, "-p", str(round(seconds * 1000))]


def print_row(row: Row) -> None:
    """A line for each figure."""
    for figure in SHOWN:
        print(
            f"{row['name']:24} {figure:11} perf_analyzer {row['perf_analyzer'][figure]:11,.1f}   "
            f"halimede bench {row['bench'][figure]:11,.1f}   {row['difference'][figure]:+.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
