"""Threads of GNU's OpenMP, which PyTorch computes with: each thread that computes has a pool of them.

They wait for work actively, but hardly any longer once all pools together have more threads than there are processors.
So a pool that nobody uses slows down everybody else's, by half where a model is many small steps.
"""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_SOFT = 1  # omp_pause_soft of OpenMP 5.0: what the program has set is kept


def end_pool() -> None:
    """End the threads of the calling thread's pools. Its next computation starts new ones."""
    for pause in _pauses():
        pause(_SOFT)


@cache
def _pauses() -> list[Callable[[int], Any]]:
    """`omp_pause_resource_all` of each GNU OpenMP in the process: wheels bring their own."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # not Linux
        return []
    paths = {path for line in lines if Path(path := line.split(maxsplit=5)[-1]).name.startswith("libgomp")}
    pauses: list[Callable[[int], Any]] = []
    for path in sorted(paths):
        with suppress(OSError, AttributeError):  # before GCC 9 there was no such function
            pauses.append(ctypes.CDLL(path).omp_pause_resource_all)
    return pauses
