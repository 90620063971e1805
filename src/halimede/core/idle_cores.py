"""Whether there are cores with nothing to do: of those that this process may use, within its cgroup's quota."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Final

from halimede.core.cgroups import MOUNT, PROC
from halimede.core.clock import SECOND
from halimede.core.cpus import cpu_quota

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_USAGES: Final = (("cpu.stat", 1_000), ("cpuacct.usage", 1))
"""Files of a cgroup that say what it has used, and how many nanoseconds their unit is."""


class IdleCores:
    """Measures from one look to the next. To be used on one thread."""

    def __init__(self, proc: Path = PROC, mount: Path = MOUNT) -> None:
        """A first look."""
        self._proc = proc
        self._quota, cgroup = cpu_quota(proc, mount)
        # the counters of version 1 are another controller's, in a directory of its own
        self._cgroups = [] if cgroup is None else [cgroup, _beside(cgroup, mount)]
        self._names = {f"cpu{number}" for number in _own_cores()}
        self._thread = 0
        self._looked_ns = monotonic_ns()
        self._idle_ns = self._idle()
        self._used_ns = self._used()
        self._queued_ns = 0

    def measure(self) -> tuple[float, float]:
        """Cores that were idle since the last look, and the share of it in which this thread waited for a core.

        No cores and no share where the system does not tell.
        """
        now, idle, used, queued = monotonic_ns(), self._idle(), self._used(), self._queued()
        elapsed = max(1, now - self._looked_ns)
        cores = (idle - self._idle_ns) / elapsed
        if self._quota:
            cores = min(cores, self._quota - (used - self._used_ns) / elapsed)
        waited = (queued - self._queued_ns) / elapsed
        self._looked_ns, self._idle_ns, self._used_ns, self._queued_ns = now, idle, used, queued
        return max(0.0, cores), waited

    def _idle(self) -> int:
        """How long all cores together have been idle, in ns."""
        ticks = 0
        with suppress(OSError, ValueError):
            for line in (self._proc / "stat").read_text().splitlines():
                name, _, rest = line.partition(" ")
                if name in self._names:
                    ticks += sum(map(int, rest.split()[3:5]))  # idle, and idle while a disk is waited for
                elif not name.startswith("cpu"):
                    break
        return ticks * SECOND // _TICKS

    def _used(self) -> int:
        """What the cgroup with the quota has used, in ns; 0 if there is no quota."""
        for cgroup, (name, unit) in zip(self._cgroups, _USAGES, strict=False):
            with suppress(OSError, ValueError, IndexError):
                return int((cgroup / name).read_text().split("usage_usec")[-1].split()[0]) * unit
        return 0

    def _queued(self) -> int:
        """How long the calling thread has waited for a core, in ns."""
        thread = threading.get_native_id()
        with suppress(OSError, ValueError, IndexError):
            queued = int((self._proc / f"self/task/{thread}/schedstat").read_text().split()[1])
            if thread != self._thread:  # the first look from this one
                self._thread, self._queued_ns = thread, queued
            return queued
        return 0


def _beside(cgroup: Path, mount: Path) -> Path:
    """The cgroup of the same path in the controller `cpuacct` of version 1."""
    path = cgroup.relative_to(mount)
    return mount / "cpuacct" / path.relative_to("cpu") if path.is_relative_to("cpu") else cgroup


def _own_cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
