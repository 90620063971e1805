"""Run the tests, several processes at a time, and say in the end what was run.

    python -m scripts.testing.run [--jobs N] [--record FILE] [DIRECTORY ...]

Without `--jobs`, there are half as many again as cores, and up to three times as many while cores are idle: some tests
compute, and others wait for most of their time.
What a process wrote is shown if one of its tests failed, in one piece. Nothing is run a second time.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from scripts.testing.processes import Ended, run_pytest
from scripts.testing.records import Record, summary
from scripts.testing.units import ROOT, Unit, quick_units, units

_IDLE = 0.15
"""If the cores are idle for more than this share of their time, one more process starts."""
_LOOK_S = 3.0


def main() -> int:
    """The exit status: 0 if all tests passed or were skipped."""
    parser = argparse.ArgumentParser(description="Run the tests.")
    parser.add_argument(
        "directories", nargs="*", metavar="DIRECTORY", help="directories of tests; all by default"
    )
    parser.add_argument(
        "--jobs", type=int, help="processes at a time (default: as many as keep the cores busy)"
    )
    parser.add_argument("--quick", action="store_true", help="only what takes two minutes in all")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="append the record of each test to this file"
    )
    given = parser.parse_args()
    begin = time.monotonic()
    chosen = quick_units() if given.quick else units(given.directories)
    records: list[Record] = []
    failed: list[tuple[str, Ended]] = []
    jobs = default_jobs() if given.jobs is None else (given.jobs, given.jobs)
    for unit, ended in run(chosen, jobs, given.record):
        records += ended.records
        if ended.failed:
            failed.append((unit.title, ended))
            say(f"== {unit.title}", ended.output)
        say(f"{'FAILED' if ended.failed else 'ok':6}  {ended.wall_s:6.1f} s  {unit.title}")
    names = [record.id for record in records if record.failed]
    say("", *(f"FAILED {name}" for name in names))
    for title, each in failed:
        say(*(f"FAILED {title}: left running: {command}" for command in each.left))
        if each.status not in (0, 1):
            say(f"FAILED {title}: exit status {each.status}")
    minutes, seconds = divmod(round(time.monotonic() - begin), 60)
    at_a_time = "{} to {}".format(*jobs) if given.jobs is None else given.jobs
    say(f"{len(chosen)} processes, {at_a_time} at a time: {minutes} min {seconds} s", *summary(records))
    return 1 if failed or not records else 0


def default_jobs() -> tuple[int, int]:
    """How many processes there are at a time, and how many at most while cores are idle."""
    cores = len(os.sched_getaffinity(0))
    return max(2, cores * 3 // 2), 3 * cores


def run(chosen: Iterable[Unit], jobs: tuple[int, int], kept: Path | None) -> Iterator[tuple[Unit, Ended]]:
    """Run units, in their order, and yield each when it has ended."""
    least, most = jobs
    waiting = deque(enumerate(chosen))
    running: set[Future[tuple[Unit, Ended]]] = set()
    idle = IdleShare()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        ThreadPoolExecutor(most) as pool,
    ):
        while waiting or running:
            if waiting and len(running) < (most if idle.take() > _IDLE else least):
                number, unit = waiting.popleft()
                running.add(pool.submit(_run, unit, Path(directory) / f"{number}.jsonl"))
                if len(running) < least:
                    continue
            ended, running = wait(running, _LOOK_S, FIRST_COMPLETED)
            for future in ended:
                unit, result = future.result()
                if kept is not None:
                    with kept.open("a") as file:
                        file.writelines(f"{record.json()}\n" for record in result.records)
                yield unit, result


class IdleShare:
    """How idle the machine's cores were lately."""

    def __init__(self) -> None:
        self._before = _ticks()

    def take(self) -> float:
        """The share of their time since this was asked before, 0 to 1."""
        (idle, every), (idle_before, every_before) = _ticks(), self._before
        self._before = idle, every
        return (idle - idle_before) / max(1, every - every_before)


def _ticks() -> tuple[int, int]:
    """How long the cores have been idle, and all of their time (proc(5), /proc/stat)."""
    values = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return values[3] + values[4], sum(values)


def _run(unit: Unit, record: Path) -> tuple[Unit, Ended]:
    files = [
        str(file.relative_to(ROOT))
        for path in unit.paths
        for file in (sorted((ROOT / path).glob("test_*.py")) if (ROOT / path).is_dir() else [ROOT / path])
    ]
    return unit, run_pytest(files, record, unit.front_ends)


def say(*lines: str) -> None:
    """Print lines at once, so that they can be followed in a pipe."""
    for line in lines:
        print(line, flush=True)  # noqa: T201 - what this program is for


if __name__ == "__main__":
    sys.exit(main())
