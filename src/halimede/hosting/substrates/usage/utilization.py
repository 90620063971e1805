"""What instances take of their processors, memory and disk."""

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic

from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.processes import descendants
from halimede.hosting.substrates.use import Utilization

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Measures one instance again and again. Blocks for a moment."""

    def __init__(self, instance: RunningInstance) -> None:
        self._instance = instance
        self._cpu_s, _ = _taken(instance.pid)
        self._when = monotonic()

    def sample(self) -> Utilization:
        """What it has taken since the last time."""
        cpu_s, memory = _taken(self._instance.pid)
        now = monotonic()
        span = max(now - self._when, 1e-3)
        # processes that have ended take what they had used with them
        cpu = max(0.0, cpu_s - self._cpu_s) / span * 100
        self._cpu_s, self._when = cpu_s, now
        with suppress(OSError):
            disk = os.statvfs(self._instance.models)
            used = 100 * (1 - disk.f_bavail / disk.f_blocks)
            return Utilization(cpu, self._share(memory), used)
        return Utilization(cpu, self._share(memory), 0.0)

    def _share(self, memory: int) -> float:
        return 100 * memory / max(1, self._instance.request.resources.memory_bytes)


def _taken(pid: int) -> tuple[float, int]:
    """Seconds of processors that a process and all that came from it have used, and bytes of memory that they have."""
    seconds, memory = 0.0, 0
    for each in descendants(pid) if pid else ():
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
            memory += int(fields[21]) * _PAGE
    return seconds, memory
