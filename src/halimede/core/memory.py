"""How much memory this process may use, and how much a process has for itself."""

import ctypes
from pathlib import Path

from halimede.core.cgroups import MOUNT, PROC, directories

_MALLOC_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)

_UNLIMITED = 1 << 60
"""Cgroups of version 1 say "no limit" by a number beyond this."""


def memory_limit(proc: Path = PROC, mount: Path = MOUNT) -> int:
    """Bytes that this process may use: the machine's memory, cut by the limits of its cgroups; 0 if nobody tells."""
    limits = [_machine_bytes(proc), *(_cgroup_bytes(each) for each in directories("memory", proc, mount))]
    return min((limit for limit in limits if limit), default=0)


def _machine_bytes(proc: Path) -> int:
    try:
        return _kilobytes(proc / "meminfo", "MemTotal") * 1024
    except (OSError, ValueError):
        return 0


def _cgroup_bytes(cgroup: Path) -> int:
    """The cgroup's own limit, of version 2 or 1; 0 for none."""
    for file in (cgroup / "memory.max", cgroup / "memory.limit_in_bytes"):
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # it is not there, or says "max"
            continue
        if limit < _UNLIMITED:
            return limit
    return 0


def private_bytes(pid: int = 0, proc: Path = Path("/proc")) -> int:
    """Bytes that would be free if the process ended, files that it has mapped left out; 0 where nobody tells.

    Pages that a worker still shares with the process that it was forked from count for neither. To know them, the
    kernel looks at every page, which takes a millisecond or so for a hundred megabytes. Of this process, which shares
    none, it has the number at hand.

    Args:
        pid: the process, 0 for this one.
        proc: where the kernel tells.
    """
    try:
        if not pid:
            return _kilobytes(proc / "self" / "status", "RssAnon") * 1024
        rollup = proc / str(pid) / "smaps_rollup"
        return min(_kilobytes(rollup, "Anonymous"), _kilobytes(rollup, "Private_Dirty")) * 1024
    except (OSError, ValueError):
        return 0


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


_MALLINFO = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _MALLINFO is not None:
    _MALLINFO.restype = _Mallinfo


def heap_bytes() -> int:
    """Bytes that this process has allocated with malloc and not freed; 0 where the C library does not tell (glibc)."""
    if _MALLINFO is None:
        return 0
    found = _MALLINFO()
    return int(found.uordblks + found.hblkhd)


def _kilobytes(file: Path, name: str) -> int:
    """The value of a line `Name:  123 kB`."""
    for line in file.read_text().splitlines():
        key, _, rest = line.partition(":")
        if key == name:
            return int(rest.split()[0])
    raise ValueError(f"{file} does not tell of {name}")


def trim_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)
