"""Processes of instances, also those that another process of the host has started.

What comes from an instance carries a mark, a variable of its environment: so it is found again whatever becomes of its
parents, its session and the host.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

MARK = "HALIMEDE_INSTANCE"
"""The variable that marks what comes from an instance; its value is the instance's directory."""

_KILLS_S = 5.0
"""So long processes are killed that do not go; what is left then hangs in the kernel."""

_POLL_INTERVAL_S = 0.02


def start_time(pid: int) -> int:
    """When a process was started, in the kernel's ticks; 0 if there is none of that number.

    It tells apart the processes that have the same number one after the other.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # the second field, the program's name in brackets, may hold anything
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def descendants(pid: int) -> list[int]:
    """A process and all that come from it, as far as their parents still live."""
    every = [pid]
    for each in every:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                every += [int(child) for child in (task / "children").read_text().split()]
    return every


def marked(directory: Path) -> Mapping[int, Path]:
    """The processes whose mark is a directory or below it, with their marks."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            mark = _mark(int(entry.name))
            if mark is not None and mark.is_relative_to(directory):
                found[int(entry.name)] = mark
    return found


def _mark(pid: int) -> Path | None:
    try:
        data = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return None
    _, found, rest = data.partition(f"\0{MARK}=".encode())
    return Path(os.fsdecode(rest.partition(b"\0")[0])) if found else None


def end_marked(directory: Path, patience_s: float, spare: Collection[Path] = ()) -> None:
    """Wait until all processes with a mark have ended, and kill those that do not. Blocks.

    Args:
        directory: their mark is this, or below it.
        patience_s: how long they may take to end by themselves.
        spare: marks of processes that are let alone, as are those below them.
    """
    began = time.monotonic()
    while True:
        left = [
            pid
            for pid, mark in marked(directory).items()
            if not any(mark.is_relative_to(each) for each in spare)
        ]
        waited = time.monotonic() - began
        if not left or waited > patience_s + _KILLS_S:
            return
        if waited >= patience_s:
            for pid in left:
                _kill(pid, directory)
        time.sleep(_POLL_INTERVAL_S)


def _kill(pid: int, directory: Path) -> None:
    """Kill a process that has a mark, and no other that has got its number meanwhile."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            mark = _mark(pid)
            if mark is not None and mark.is_relative_to(directory):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


class Watched:
    """A process that is watched until it ends. Lives on the event loop.

    Attributes:
        pid: its number.
        ended: set when it has ended.
    """

    def __init__(self, pid: int, on_end: Callable[[], None]) -> None:
        """Watch a process.

        Raises:
            ProcessLookupError: there is none.
        """
        self.pid = pid
        self.ended = asyncio.Event()
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._over)

    def _over(self) -> None:
        self.forget()
        self.ended.set()
        self._on_end()

    def forget(self) -> None:
        """Watch it no more."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _signal(self, number: signal.Signals) -> None:
        # by its descriptor: another process may have got its number
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def end(self, grace_s: float) -> None:
        """Ask the process to end, and kill it if it has not after `grace_s`. What came from it is not its concern."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.ended.wait()
        self._signal(signal.SIGKILL)
        await self.ended.wait()
