"""Processes that tests stop, as if they hung. `make stress`, which stops others for a moment, leaves these alone."""

import os
import signal
from pathlib import Path


def stop(pid: int) -> None:
    """Have a process do nothing until it is told to go on.

    Raises:
        ProcessLookupError: there is none.
    """
    _say(f"{pid}\n")
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Have it go on.

    Raises:
        ProcessLookupError: there is none.
    """
    _say(f"-{pid}\n")
    os.kill(pid, signal.SIGCONT)


def _say(line: str) -> None:
    record = os.environ.get("TEST_RECORD")
    if record is not None:
        with Path(f"{record}.stopped").open("a") as file:
            file.write(line)
