"""The processes of tests: their environment, by which they and those that they start are found.

Without PYTHONDONTWRITEBYTECODE, as a server that compiles its modules starts four times slower.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

END_S = 30.0
"""How long processes that tests have started may take to end after them."""


def environment(record: Path, front_ends: int) -> dict[str, str]:
    """The environment of tests that are recorded in a file, and whose servers have so many front ends."""
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


def end_those_left(variable: bytes) -> list[str]:
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
