"""Measure every workload and print the tables; `python -m benchmarks --help` says what can be chosen."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    asynchronous,
    buckets,
    capture,
    eviction,
    footprint,
    front_ends,
    hosting,
    implicit_state,
    in_server,
    json_decoding,
    json_tensors,
    overheads,
    python_backend,
    ray_cluster,
    report,
    repository_control,
    resnet,
    response_cache,
    rival,
    sagemaker,
    sequences,
    shadow,
    shared_memory,
    stages,
    tls,
    tracing,
    wire,
)
from benchmarks.embeddings import rows as embeddings
from benchmarks.errors import BenchmarkError
from benchmarks.frameworks import rows as frameworks
from benchmarks.language import rows as language
from benchmarks.tools import ROOT
from benchmarks.workload import Against, Result, Workload, measure

OUTPUT = ROOT / "build" / "benchmarks.json"
SUBJECTS = (
    wire,
    resnet,
    response_cache,
    json_decoding,
    json_tensors,
    footprint,
    front_ends,
    sagemaker,
    sequences,
    eviction,
    frameworks,
    python_backend,
    in_server,
    stages,
    repository_control,
    buckets,
    implicit_state,
    hosting,
    asynchronous,
    capture,
    shadow,
    tracing,
    tls,
    shared_memory,
    overheads,
    language,
    embeddings,
    ray_cluster,
)


def main() -> None:
    """Measure, print a line while it lasts and the tables at the end, and write the JSON file."""
    every = [workload for subject in SUBJECTS for workload in subject.workloads()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="workloads whose name contains it; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side (default 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of a measurement (default 3)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="only print the names")
    arguments = parser.parse_args()

    chosen = [one for one in every if not arguments.only or any(part in one.name for part in arguments.only)]
    if arguments.list or not chosen:
        print("\n".join(one.name for one in (chosen or every)))
        parser.exit(0 if arguments.list else 2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the servers are ended
    possible, skipped = without_missing(chosen)
    possible, without = without_rival(possible)
    skipped += without
    results: list[Result] = []
    failed: list[str] = []
    for workload in possible:
        try:
            results.append(run(workload, arguments.rounds, arguments.seconds))
        except BenchmarkError as error:
            print(f"{workload.name} failed: {error}", flush=True)
            failed.append(workload.name)
            continue
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(report.document(results), indent=2) + "\n")
    print(f"\nMedians of {arguments.rounds} rounds, lowest and highest in brackets")
    for against in Against:
        if any(result.workload.against is against for result in results):
            print(f"\n{report.table(results, against)}")
    if text := stages.tables(results):
        print(f"\n{text}")
    for line in skipped:
        print(f"\nSkipped: {line}")
    if failed:
        parser.exit(1, f"\nNot measured: {', '.join(failed)}\n")


def without_missing(chosen: Sequence[Workload]) -> tuple[Sequence[Workload], list[str]]:
    """The workloads that have what they need, and a line for each that has not."""
    skipped = [f"{one.name}: there is no {one.missing} here" for one in chosen if one.missing]
    return [one for one in chosen if not one.missing], skipped


def without_rival(chosen: Sequence[Workload]) -> tuple[Sequence[Workload], list[str]]:
    """The workloads that can run without tritonserver, or all if it is here, and a line that has the others."""
    names = [one.name for one in chosen if one.against is Against.TRITONSERVER]
    if names:
        try:
            rival.environment()
        except rival.UnavailableError as error:
            possible = [one for one in chosen if one.against is not Against.TRITONSERVER]
            return possible, [f"{', '.join(names)}: there is no tritonserver here: {error}"]
    return chosen, []


def run(workload: Workload, rounds: int, seconds: float) -> Result:
    """The result of all rounds; a line is printed after each."""
    result = Result(workload)
    for result in measure(workload, rounds, seconds):
        ours, other = report.figure(result.ours[-1].value), report.figure(result.other[-1].value)
        print(
            f"{workload.name}, round {len(result.ours)}: {ours} against {other} {workload.unit}", flush=True
        )
    return result


if __name__ == "__main__":
    main()
