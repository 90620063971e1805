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

from scripts.testing.processes import Ended, processes_with, run_pytest, variable
from scripts.testing.records import Record
from scripts.testing.run import say

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
    all_ended: list[Ended] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        in_the_way(Path(name)),
        ThreadPoolExecutor(given.jobs) as pool,
    ):
        directory = Path(name)
        futures = [
            pool.submit(run, given.tests, seed, min(REPEATED, given.runs), given.front_ends, directory)
            for seed in seeds
        ]
        for future in as_completed(futures):
            seed, ended = future.result()
            all_ended.append(ended)
            if ended.failed:
                say(ended.output, f"== FAILED with the order of seed {seed}")
    return tell(all_ended)


def tell(all_ended: list[Ended]) -> int:
    """Print how often each test that failed did, what was left running, and how many there were; the exit status."""
    records = [record for ended in all_ended for record in ended.records]
    names = Counter(_name(record) for record in records)
    failures = Counter(_name(record) for record in records if record.failed)
    say("", *(f"FAILED {count} of {names[name]}: {name}" for name, count in failures.most_common()))
    say(*(f"FAILED: left running: {command}" for ended in all_ended for command in ended.left))
    say(
        f"{len(names)} tests, each {min(names.values(), default=0)} to {max(names.values(), default=0)} times"
    )
    skipped = sum(record.outcome == "skipped" for record in records)
    say(f"{len(records) - failures.total() - skipped} passed, {failures.total()} failed, {skipped} skipped")
    return 1 if any(ended.failed for ended in all_ended) or not records else 0


def _name(record: Record) -> str:
    """Its name without the repetition, which stands last among its parameters."""
    return re.sub(r"-?#\d+]$", "]", record.id).removesuffix("[]")


def run(tests: list[str], seed: int, times: int, front_ends: int, directory: Path) -> tuple[int, Ended]:
    """The seed, and what became of the tests, which one process ran so many times in that order."""
    record = directory / f"{seed}.jsonl"
    options = ["-p", "tests.support.stressing", "-q", f"--times={times}", f"--order={seed}"]
    under = ["ionice", "-c3"] if shutil.which("ionice") else []
    done = threading.Event()
    stopping = threading.Thread(target=stop_now_and_then, args=(record, random.Random(seed), done))  # noqa: S311 - as above
    stopping.start()
    try:
        return seed, run_pytest([*options, *tests], record, front_ends, under)
    finally:
        done.set()
        stopping.join()


def stop_now_and_then(record: Path, chance: random.Random, done: threading.Event) -> None:
    """Until it is done, stop one process of the recorded tests after the other, and let it go on."""
    while not done.wait(chance.uniform(*APART_S)):
        found = [pid for pid in processes_with(variable(record)) if not is_stopped(pid)]
        if not found:
            continue
        pid = chance.choice(found)
        before = stopped_by_tests(record)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(chance.uniform(*STOPPED_S))
            finally:
                os.kill(pid, signal.SIGCONT)
                if pid in stopped_by_tests(record) - before:  # meanwhile
                    os.kill(pid, signal.SIGSTOP)


def stopped_by_tests(record: Path) -> set[int]:
    """The processes that tests keep stopped: see `tests.support.stopping`."""
    stopped: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        for line in Path(f"{record}.stopped").read_text().split():
            pid = abs(int(line))
            (stopped.discard if line.startswith("-") else stopped.add)(pid)
    return stopped


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, or gone: a test has stopped it, which only that test is to end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("T", "t", "Z")


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
