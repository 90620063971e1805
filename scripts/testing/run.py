"""Run the tests, several processes at a time, and say in the end what was run.

    python -m scripts.testing.run [--jobs N] [--record FILE] [DIRECTORY ...]

What a process wrote is shown if one of its tests failed, in one piece. Nothing is run a second time.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from scripts.testing.processes import Ended, run_pytest
from scripts.testing.records import Record, summary
from scripts.testing.units import ROOT, Unit, quick_units, units


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
    failed: list[tuple[str, Ended]] = []
    for unit, ended in run(chosen, given.jobs, given.record):
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
    say(f"{len(chosen)} processes, {given.jobs} at a time: {minutes} min {seconds} s", *summary(records))
    return 1 if failed or not records else 0


def default_jobs() -> int:
    """Twice as many as there are cores: for almost half of its time, a test waits."""
    return 2 * len(os.sched_getaffinity(0))


def run(chosen: Iterable[Unit], jobs: int, kept: Path | None) -> Iterator[tuple[Unit, Ended]]:
    """Run units, in their order, and yield each when it has ended."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        ThreadPoolExecutor(jobs) as pool,
    ):
        futures: list[Future[tuple[Unit, Ended]]] = [
            pool.submit(_run, unit, Path(directory) / f"{number}.jsonl") for number, unit in enumerate(chosen)
        ]
        for future in as_completed(futures):
            unit, ended = future.result()
            if kept is not None:
                with kept.open("a") as file:
                    file.writelines(f"{record.json()}\n" for record in ended.records)
            yield unit, ended


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
