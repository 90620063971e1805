"""A process and all that descend from it, as /proc knows them."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment.

    Attributes:
        pid, parent: process ids.
        started: clock ticks from the start of the machine to its own; with the id it names it for good.
        cpu_ticks: CPU time in clock ticks, that of children that have ended included.
    """

    pid: int
    parent: int
    started: int
    cpu_ticks: int

    def kill(self) -> None:
        """End it at once, if it is still there."""
        now = look(self.pid)
        if now is not None and now.started == self.started:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def look(pid: int) -> Process | None:
    """The process as it is now; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # fields of proc(5), which counts from 1 and has two before these
    return Process(pid, int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])))


def tree(pid: int) -> list[Process]:
    """That process, first, and all below it, whatever their groups and sessions."""
    everything = [one for path in Path("/proc").glob("[0-9]*") if (one := look(int(path.name)))]
    children: dict[int, list[Process]] = {}
    for one in everything:
        children.setdefault(one.parent, []).append(one)
    found = [one for one in everything if one.pid == pid]
    for one in found:  # grows meanwhile
        found += children.get(one.pid, [])
    return found
