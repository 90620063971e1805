"""On which processors a thread runs, and of which NUMA node it takes memory."""

import ctypes
import os
import platform
from typing import Iterable, Optional

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call, for which the C library has no function."""

_DEFAULT, _BIND = 0, 2
_MAX_NODES = 1024


def place(cpus: Iterable[int], node: Optional[int]) -> None:
    """Let the calling thread, and those that it starts, run on these CPUs and take memory of that node.

    Args:
        cpus: numbers of CPUs; those that there are not do not matter, as long as there is one.
        node: number of a NUMA node; None for memory of any.

    Raises:
        OSError: the system refuses it, or there is none of the CPUs, or no such node.
    """
    os.sched_setaffinity(0, cpus)
    if node is not None:
        bits = ctypes.c_ulong * (_MAX_NODES // (8 * ctypes.sizeof(ctypes.c_ulong)))
        mask = bits()
        size = 8 * ctypes.sizeof(ctypes.c_ulong)
        mask[node // size] = 1 << node % size
        _set_memory_policy(_BIND, ctypes.byref(mask), _MAX_NODES)


def release_memory() -> None:
    """Let the calling thread take memory of any node."""
    _set_memory_policy(_DEFAULT, None, 0)


def _set_memory_policy(mode: int, mask: object, nodes: int) -> None:
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(0, "memory of one NUMA node is not supported on " + platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, mode, mask, ctypes.c_ulong(nodes)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
