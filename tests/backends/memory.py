"""What loads of a model take of memory, measured in a process of their own."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.backends.helpers import Loaded

WARM_UP = 3
"""So many loads come first: what a framework sets up once is no growth."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in MiB.

    Attributes:
        grown: how much more there was after the loads than before.
        held: how much more there was, at most, while the model was loaded.
    """

    grown: float
    held: float


def memory_over_loads(prepare: Callable[..., Callable[[], Loaded]], *arguments: object, loads: int) -> Memory:
    """What so many loads of a model take, each of which is closed before the next.

    Args:
        prepare: a function of a module, called in the process with the arguments as texts; what it gives loads the
            model, runs it and returns it.
        arguments: for `prepare`.
        loads: how many.
    """
    command = [sys.executable, "-W", "ignore", "-m", __name__, prepare.__module__, prepare.__qualname__]
    done = subprocess.run(
        [*command, str(loads), *map(str, arguments)],
        # freed blocks go back to the system at once, so that what is resident is in use
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def resident_mb() -> float:
    """MiB of memory that this process has, once what is free has been given back."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def _measure(load: Callable[[], Loaded], loads: int) -> dict[str, float]:
    def cycle() -> float:
        loaded = load()
        held = resident_mb()
        loaded.close()
        return held

    for _ in range(WARM_UP):
        cycle()
    before = resident_mb()
    held = max(cycle() for _ in range(loads))
    return {"grown": resident_mb() - before, "held": held - before}


if __name__ == "__main__":
    prepare = getattr(import_module(sys.argv[1]), sys.argv[2])
    print(json.dumps(_measure(prepare(*sys.argv[4:]), int(sys.argv[3]))))  # noqa: T201 - to the parent
