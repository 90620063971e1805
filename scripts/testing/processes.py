"""The processes of tests, and those that they start: their environment has the file where tests are recorded.

Without PYTHONDONTWRITEBYTECODE, as a server that compiles its modules starts four times slower.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scripts.testing.records import Record, read
from scripts.testing.units import ROOT

END_S = 30.0
"""How long processes that tests have started may take to end after them."""

_DELETING = ThreadPoolExecutor(1)
"""Deletes what tests have left, which no other tests wait for."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of pytest that has ended.

    Attributes:
        status: its exit status.
        output: what it wrote.
        records: its tests.
        left: the command lines of processes that it left running.
        wall_s: how long it took.
    """

    status: int
    output: str
    records: list[Record]
    left: list[str]
    wall_s: float

    @property
    def failed(self) -> bool:
        """Whether a test failed, or the process did; 5 is pytest's status for modules that are all skipped."""
        return self.status not in (0, 5) or bool(self.left) or any(record.failed for record in self.records)


def run_pytest(
    arguments: Sequence[str], record: Path, front_ends: int = 1, under: Sequence[str] = ()
) -> Ended:
    """Run tests in a process of their own.

    Its temporary directories are not those of pytest, which would delete what earlier processes have left there.

    Args:
        arguments: those of pytest.
        record: the new file where tests are recorded; what the process writes goes beside it.
        front_ends: how many front ends the servers of the tests have.
        under: a program, with its arguments, that runs pytest.
    """
    begin = time.monotonic()
    log, directory = record.with_suffix(".log"), record.with_suffix("")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.recording", f"--basetemp={directory}"]
    with log.open("wb") as output:
        status = subprocess.run(  # noqa: S603 - the interpreter that runs this
            [*under, *command, *arguments],
            cwd=ROOT,
            env=_environment(record, front_ends),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    left = _end_those_left(variable(record))
    _DELETING.submit(shutil.rmtree, directory, ignore_errors=True)
    records = list(read(record, front_ends))
    return Ended(status, log.read_text(errors="replace"), records, left, time.monotonic() - begin)


def variable(record: Path) -> bytes:
    """What is in the environment of all processes of the tests that are recorded there, and of no others."""
    return f"TEST_RECORD={record}".encode()


def _environment(record: Path, front_ends: int) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        # Idle threads of OpenBLAS compute while they wait, ten times as much as the small models of tests need.
        "OPENBLAS_NUM_THREADS": "1",
        **others,
        "TEST_FRONT_ENDS": str(front_ends),
        "TEST_RECORD": str(record),
        "RAY_AUTH_MODE": "disabled",  # a token that another program of this user has left is none of these tests'
    }


def processes_with(variable: bytes) -> Iterator[int]:
    """The ids of the processes that have this in their environment: ``NAME=value``."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and variable in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _end_those_left(variable: bytes) -> list[str]:
    """Kill the processes that have this in their environment and have not ended within `END_S`; their command lines."""
    deadline = time.monotonic() + END_S
    while (left := list(processes_with(variable))) and time.monotonic() < deadline:
        time.sleep(0.1)
    commands = []
    for pid in left:
        with contextlib.suppress(OSError):
            commands.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
            os.kill(pid, signal.SIGKILL)
    return commands
