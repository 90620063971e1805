"""Run the tests, several processes at a time, and say in the end what was run.

    python -m scripts.testing.run [--jobs N] [--record FILE] [DIRECTORY ...]

What a process wrote is shown if one of its tests failed, in one piece. Nothing is run a second time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from scripts.testing.processes import end_those_left, environment
from scripts.testing.records import Record, read, summary
from scripts.testing.units import ROOT, Unit, quick_units, units


@dataclass(frozen=True, slots=True)
class Ended:
    """A unit that was run.

    Attributes:
        unit: which.
        status: the exit status of its process.
        output: what it wrote.
        records: its tests.
        left: the command lines of processes that it left running.
        wall_s: how long it took.
    """

    unit: Unit
    status: int
    output: str
    records: list[Record]
    left: list[str]
    wall_s: float

    @property
    def failed(self) -> bool:
        """Whether a test failed, or the process did; 5 is pytest's status for modules that are all skipped."""
        return self.status not in (0, 5) or bool(self.left) or any(record.failed for record in self.records)


def main() -> int:
    """The exit status: 0 if all tests passed or were skipped."""
    parser = argparse.ArgumentParser(description="Run the tests.")
    parser.add_argument(
        "directories", nargs="*", metavar="DIRECTORY", help="directories of tests; all by default"
    )
    parser.add_argument(
        "--jobs", type=int, default=default_jobs(), help="processes at a time (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="only what takes two minutes in all")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="append the record of each test to this file"
    )
    given = parser.parse_args()
    begin = time.monotonic()
    chosen = quick_units() if given.quick else units(given.directories)
    records: list[Record] = []
    failed: list[Ended] = []
    for ended in run(chosen, given.jobs, given.record):
        records += ended.records
        if ended.failed:
            failed.append(ended)
            say(f"== {ended.unit.title}", ended.output)
        say(f"{'FAILED' if ended.failed else 'ok':6}  {ended.wall_s:6.1f} s  {ended.unit.title}")
    names = [record.id for record in records if record.failed]
    say("", *(f"FAILED {name}" for name in names))
    for each in failed:
        say(*(f"FAILED {each.unit.title}: left running: {command}" for command in each.left))
        if each.status not in (0, 1):
            say(f"FAILED {each.unit.title}: exit status {each.status}")
    minutes, seconds = divmod(round(time.monotonic() - begin), 60)
    say(f"{len(chosen)} processes, {given.jobs} at a time: {minutes} min {seconds} s", *summary(records))
    return 1 if failed or not records else 0


def default_jobs() -> int:
    """Half as many again as there are cores: for about a third of its time, a test waits."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2)


def run(chosen: Iterable[Unit], jobs: int, kept: Path | None) -> Iterator[Ended]:
    """Run units, in their order, and yield each when it has ended."""
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[Ended]] = [
            pool.submit(_run, unit, Path(directory) / f"{number}.jsonl") for number, unit in enumerate(chosen)
        ]
        for future in as_completed(futures):
            ended = future.result()
            if kept is not None:
                with kept.open("a") as file:
                    file.writelines(f"{record.json()}\n" for record in ended.records)
            yield ended


def _run(unit: Unit, record: Path) -> Ended:
    files = [
        str(file.relative_to(ROOT))
        for path in unit.paths
        for file in (sorted((ROOT / path).glob("test_*.py")) if (ROOT / path).is_dir() else [ROOT / path])
    ]
    begin = time.monotonic()
    log = record.with_suffix(".log")
    with log.open("wb") as output:
        command = [sys.executable, "-m", "pytest", "-p", "tests.support.recording", *files]
        status = subprocess.run(  # noqa: S603 - the interpreter that runs this
            command,
            cwd=ROOT,
            env=environment(record, unit.front_ends),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    left = end_those_left(f"TEST_RECORD={record}".encode())
    return Ended(
        unit,
        status,
        log.read_text(errors="replace"),
        list(read(record, unit.front_ends)),
        left,
        time.monotonic() - begin,
    )


def say(*lines: str) -> None:
    """Print lines at once, so that they can be followed in a pipe."""
    for line in lines:
        print(line, flush=True)  # noqa: T201 - what this program is for


if __name__ == "__main__":
    sys.exit(main())
