"""The processes of tests: those that have a certain variable in their environment, which they inherit."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

END_S = 30.0
"""How long processes that tests have started may take to end after them."""


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
