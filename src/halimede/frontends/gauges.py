"""Gauges of the machine: processors and memory, from `/proc`."""

from pathlib import Path

from halimede.core.clock import MILLISECOND, Clock


class CpuUtilization:
    """The share of the machine's processor time that was used lately, by whatever process."""

    def __init__(self, clock: Clock, interval_ms: int, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._interval = interval_ms * MILLISECOND
        self._stat = proc / "stat"
        self._measured = clock.now()
        self._busy, self._total = self._times()
        self._share = 0.0

    def read(self) -> float:
        """From 0 to 1, over the time since the last measurement; it is measured once an interval at most."""
        now = self._clock.now()
        if now - self._measured >= self._interval:
            busy, total = self._times()
            if total > self._total:
                self._share = (busy - self._busy) / (total - self._total)
            self._measured, self._busy, self._total = now, busy, total
        return self._share

    def _times(self) -> tuple[int, int]:
        """Ticks that all processors were busy, and all their ticks."""
        try:
            first, _, _ = self._stat.read_text().partition("\n")
        except OSError:
            return 0, 0
        # user nice system idle iowait irq softirq steal; the guests' times that follow are part of user and nice
        ticks = [int(text) for text in first.split()[1:9]]
        total = sum(ticks)
        return total - sum(ticks[3:5]), total


def memory_bytes(proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """The machine's memory and what of it is in use, in bytes; None where the system does not tell."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    total = kilobytes["MemTotal"]
    return total * 1024, (total - kilobytes["MemAvailable"]) * 1024
