"""Why a worker process ended, in words that a user can act on."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from halimede.core.cgroups import directories

_HINTS: dict[int, str] = {
    signal.SIGSEGV: "crashed with SIGSEGV, a fault in native code",
    signal.SIGBUS: "crashed with SIGBUS: memory of a file that is too short, or for which there was no more room",
    signal.SIGILL: "crashed with SIGILL: native code that was built for another processor",
    signal.SIGFPE: "crashed with SIGFPE, a division by zero in native code",
    signal.SIGABRT: "crashed with SIGABRT: native code gave up; what it printed says why",
    signal.SIGSYS: "was killed by SIGSYS: a system call that is forbidden here",
    signal.SIGXCPU: "was killed by SIGXCPU: it used up its limit of processor time",
}


@dataclass(frozen=True, slots=True)
class ExitReason:
    """How a process ended.

    Attributes:
        status: as `os.waitpid` returns it; None if nobody could know.
        killed: the server killed it.
        oom_kills: how many processes the kernel's out-of-memory killer ended, while it ran, in the cgroup that the
            server belongs to; None if that cannot be read.
    """

    status: int | None
    killed: bool = False
    oom_kills: int | None = None

    @property
    def words(self) -> str:
        """What it did, as in "the process …"."""
        if self.status is None:
            return "was killed by the server" if self.killed else "ended; how is not known"
        if os.WIFEXITED(self.status):
            return f"exited with status {os.WEXITSTATUS(self.status)}"
        number = os.WTERMSIG(self.status)
        if number == signal.SIGKILL:
            return self._sigkill()
        dumped = " (core dumped)" if os.WCOREDUMP(self.status) else ""
        return _HINTS.get(number, f"was killed by {_signal_name(number)}") + dumped

    def _sigkill(self) -> str:
        if self.killed:
            return "was killed by the server"
        if self.oom_kills is None:
            return "was killed by SIGKILL, perhaps by the kernel's out-of-memory killer"
        if self.oom_kills == 0:
            return "was killed by SIGKILL, but not by the kernel's out-of-memory killer, which has not acted"
        count = "a process" if self.oom_kills == 1 else f"{self.oom_kills} processes"
        return (
            "was killed by SIGKILL, probably by the kernel's out-of-memory killer, which has ended "
            f"{count} while it ran: it needs more memory than there is"
        )


def unhealthy(instance: str, reason: str = "") -> str:
    """The error of a model instance whose process is gone.

    Args:
        instance: its name.
        reason: what the process did, such as "exited with status 1"; "" if that is not known yet.
    """
    text = f"Stub process '{instance}' is not healthy."
    return f"{text} It {reason}" if reason else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def count_oom_kills(root: Path = Path("/")) -> int | None:
    """How many processes the out-of-memory killer has ended in this process's cgroup, so far.

    Without a memory cgroup: in the whole system. None if that cannot be read.
    """
    for path in _oom_files(root):
        try:
            text = path.read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _oom_files(root: Path) -> list[Path]:
    """Where the count may be, the best place first."""
    cgroups = directories("memory", root / "proc", root / "sys/fs/cgroup")
    names = ("memory.events", "memory.oom_control")
    return [*(each / name for each in cgroups for name in names), root / "proc/vmstat"]
