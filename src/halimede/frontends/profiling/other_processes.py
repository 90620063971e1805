"""The processes below the server's own, and what they take of the processors: from `/proc`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """A process below the server's own.

    Attributes:
        pid: its number.
        name: what it is called; instances of models are `halimede-MODEL_N`, cut to 15 characters.
        cores: how many cores it kept busy, on average.
    """

    pid: int
    name: str
    cores: float


class _Seen(NamedTuple):
    name: str
    ticks: int


class OtherProcesses:
    """Measures from when it is made."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """All below this process."""
        self._proc = proc
        self._began = monotonic()
        self._before = self._look(but=0)

    def measure(self, but: int = 0) -> list[OtherProcess]:
        """Those that there are now, but for `but`; those that work most come first."""
        elapsed = max(1e-9, monotonic() - self._began)
        found = [
            OtherProcess(pid, seen.name, (seen.ticks - self._ticks_before(pid)) / _TICKS / elapsed)
            for pid, seen in self._look(but).items()
        ]
        return sorted(found, key=lambda each: (-each.cores, each.pid))

    def _ticks_before(self, pid: int) -> int:
        before = self._before.get(pid)
        return 0 if before is None else before.ticks

    def _look(self, but: int) -> Mapping[int, _Seen]:
        seen: dict[int, _Seen] = {}
        below: dict[int, list[int]] = {}
        for entry in self._proc.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(") ")
                words = rest.split()
                pid = int(entry.name)
                seen[pid] = _Seen(name, int(words[11]) + int(words[12]))
                below.setdefault(int(words[1]), []).append(pid)
        found: dict[int, _Seen] = {}
        waiting = [os.getpid()]
        while waiting:
            for pid in below.get(waiting.pop(), ()):
                if pid != but:
                    found[pid] = seen[pid]
                    waiting.append(pid)
        return found
