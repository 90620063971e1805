"""Serve the same function by each side in turn, measure it, and print the table of docs/functions.md.

Each side is started with its defaults on one core, the client on another, and asked over HTTP with JSON.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.connections import Call, connected, exchange, median_time, rate
from benchmarks.errors import BenchmarkError
from benchmarks.functions.sides import BUILT, NUMBERS, SIDES, Side
from benchmarks.processes import Server, cores, free_ports, pinned, process
from benchmarks.workload import Sample

_STARTED_WITHIN_S = 120
_CONCURRENCY = 16

Figures = dict[str, list[Sample]]


def measure(side: Side, seconds: float) -> dict[str, Sample]:
    """One measurement of each figure.

    Raises:
        BenchmarkError: the side does not start, or does not answer.
    """
    [port] = free_ports(1)
    servers, clients = cores()
    with (
        tempfile.TemporaryFile() as log,
        process([side.python(), side.source, str(port)], servers, stdout=log, stderr=log) as child,
        pinned(clients),
    ):
        server = Server(child, port, 0)
        call = Call(port, side.path, {"Content-Type": "application/json"}, side.message)
        began = time.monotonic()
        while not _answers(call):
            if child.poll() is not None or time.monotonic() - began > _STARTED_WITHIN_S:
                log.seek(0)
                raise BenchmarkError(
                    f"{side.name} does not serve: {log.read()[-2000:].decode(errors='replace')}"
                )
            time.sleep(0.1)
        started = time.monotonic() - began
        return {
            "one": median_time(server, call, seconds),
            "many": rate(server, call, _CONCURRENCY, seconds),
            "start": Sample(started),
            "memory": Sample(server.resident_mb_of_all()),
        }


def _answers(call: Call) -> bool:
    try:
        with connected(call) as connection:
            answer = exchange(connection, call.message)
    except (OSError, BenchmarkError):
        return False
    body = answer.partition(b"\r\n\r\n")[2]
    document = json.loads(
        re.sub(rb"^[0-9a-f]+\r\n|\r\n(0\r\n\r\n)?$", b"", body)
    )  # perhaps it comes as a chunk
    output = document["outputs"][0]["data"] if "outputs" in document else document
    output = output["output"] if isinstance(output, dict) else output
    if output != [2 * number for number in NUMBERS]:
        raise AssertionError(f"the answer is {document}")
    return True


def table(figures: dict[str, Figures]) -> str:
    """The table of the page: medians of the rounds."""
    heading = (
        f"| | Release | Lines | One by one, µs | Requests/s of {_CONCURRENCY} clients | CPU of a request, µs | "
        "Ready after, s | Memory, MB |"
    )
    lines = [heading, "|---|---|---|---|---|---|---|---|"]
    for side in SIDES:
        if side.name not in figures:
            continue
        taken = figures[side.name]
        median = {name: statistics.median(each.value for each in samples) for name, samples in taken.items()}
        cpu = statistics.median(each.cpu_us or 0 for each in taken["many"])
        lines.append(
            f"| {side.name} | {side.version()} | {side.lines} | {median['one']:,.0f} | {median['many']:,.0f} | "
            f"{cpu:,.0f} | "
            f"{median['start']:.1f} | {median['memory']:,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure the sides in turn, so often, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="sides whose name contains it; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side (default 3)")
    parser.add_argument("--seconds", type=float, default=5, help="length of a measurement (default 5)")
    arguments = parser.parse_args()
    sides = [
        side
        for side in SIDES
        if not arguments.only or any(name.lower() in side.name.lower() for name in arguments.only)
    ]
    figures: dict[str, Figures] = {}
    for number in range(arguments.rounds):
        for side in sides:
            try:
                samples = measure(side, arguments.seconds)
            except BenchmarkError as error:
                print(f"{side.name}: {error}", flush=True)
                continue
            shown = ", ".join(f"{name} {sample.value:,.1f}" for name, sample in samples.items())
            print(f"round {number + 1}: {side.name}: {shown}", flush=True)
            for name, sample in samples.items():
                figures.setdefault(side.name, {}).setdefault(name, []).append(sample)
    print(table(figures))
    Path(BUILT).mkdir(parents=True, exist_ok=True)
    (BUILT / "table.md").write_text(table(figures) + "\n")


if __name__ == "__main__":
    main()
