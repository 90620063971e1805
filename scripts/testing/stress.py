"""Run tests again and again on a machine that is in their way, and say which failed.

    python -m scripts.testing.stress [--runs N] [--jobs N] [--front-ends N] TEST ...

Meanwhile, a process computes on each core. Another one writes to the disk without a pause, and the tests have the
lowest priority there. Processes of the tests, and those that they started, are stopped one after the other for up to a
third of a second (SIGSTOP). The order of the files, and of the tests in each, is random: a failure has its seed.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from scripts.testing.processes import end_those_left, environment, processes_with
from scripts.testing.records import Record, read
from scripts.testing.run import say
from scripts.testing.units import ROOT

REPEATED = 10
"""How many times one process runs the tests, at most: starting it takes longer than many a test."""
STOPPED_S = (0.01, 0.3)
APART_S = (0.02, 0.3)
BUSY = "while True: pass"
WRITING = """
import os, sys
block = os.urandom(4 << 20)
with open(sys.argv[1], "wb") as file:
    while True:
        file.seek(0)
        file.write(block)
        os.fsync(file.fileno())
"""


def main() -> int:
    """The exit status: 0 if nothing failed."""
    parser = argparse.ArgumentParser(description="Run tests many times on a machine that is in their way.")
    parser.add_argument("tests", nargs="+", metavar="TEST", help="files, directories or tests, as for pytest")
    parser.add_argument(
        "--runs", type=int, default=200, help="how often each test runs (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes of tests at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--front-ends", type=int, default=1, help="front ends of servers (default: %(default)s)"
    )
    given = parser.parse_args()
    seeds = random.Random().sample(  # noqa: S311 - an order
        range(10**6), -(-given.runs // REPEATED)
    )
    records: list[Record] = []
    with (
        tempfile.TemporaryDirectory() as name,
        in_the_way(Path(name)),
        ThreadPoolExecutor(given.jobs) as pool,
    ):
        directory = Path(name)
        futures = [
            pool.submit(run, given.tests, seed, min(REPEATED, given.runs), given.front_ends, directory)
            for seed in seeds
        ]
        for future in as_completed(futures):
            seed, output, found = future.result()
            records += found
            if failed := [record for record in found if record.failed] or not found:
                say(output, f"== FAILED with the order of seed {seed}: {failed}")
    return tell(records)


def tell(records: list[Record]) -> int:
    """Print how often each test that failed did, and how many there were; the exit status."""
    names = Counter(_name(record) for record in records)
    failures = Counter(_name(record) for record in records if record.failed)
    say("", *(f"FAILED {count} of {names[name]}: {name}" for name, count in failures.most_common()))
    say(
        f"{len(names)} tests, each {min(names.values(), default=0)} to {max(names.values(), default=0)} times"
    )
    skipped = sum(record.outcome == "skipped" for record in records)
    say(f"{len(records) - failures.total() - skipped} passed, {failures.total()} failed, {skipped} skipped")
    return 1 if failures or not records else 0


def _name(record: Record) -> str:
    """Its name without the repetition, which stands last among its parameters."""
    return re.sub(r"-?#\d+]$", "]", record.id).removesuffix("[]")


def run(
    tests: list[str], seed: int, times: int, front_ends: int, directory: Path
) -> tuple[int, str, list[Record]]:
    """Run the tests so many times in one process: the seed, what it wrote, and the records."""
    record = directory / f"{seed}.jsonl"
    command = [
        *(("ionice", "-c3") if shutil.which("ionice") else ()),
        sys.executable, "-m", "pytest", "-p", "tests.support.recording", "-p", "tests.support.stressing", "-q",
        f"--times={times}", f"--order={seed}", *tests,
    ]  # fmt: skip
    done = threading.Event()
    variable = f"TEST_RECORD={record}".encode()
    stopping = threading.Thread(target=stop_now_and_then, args=(variable, random.Random(seed), done))  # noqa: S311 - as above
    with record.with_suffix(".log").open("w+b") as output:
        process = subprocess.Popen(  # noqa: S603 - the interpreter that runs this
            command,
            cwd=ROOT,
            env=environment(record, front_ends),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        stopping.start()
        process.wait()
        done.set()
        stopping.join()
    end_those_left(variable)
    return seed, record.with_suffix(".log").read_text(errors="replace"), list(read(record, front_ends))


def stop_now_and_then(variable: bytes, chance: random.Random, done: threading.Event) -> None:
    """Until it is done, stop one process after the other that has this in its environment, and let it go on."""
    while not done.wait(chance.uniform(*APART_S)):
        found = list(processes_with(variable))
        if not found:
            continue
        pid = chance.choice(found)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(chance.uniform(*STOPPED_S))
            finally:
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def in_the_way(directory: Path) -> Iterator[None]:
    """In the block, each core computes and the disk writes."""
    commands = [[sys.executable, "-c", BUSY] for _ in os.sched_getaffinity(0)]
    commands.append([sys.executable, "-c", WRITING, str(directory / "written")])
    running = [subprocess.Popen(command) for command in commands]  # noqa: S603 - as above
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
