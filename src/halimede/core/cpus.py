"""How many processors this process may use."""

import os
import time
from contextlib import suppress
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Final

from halimede.core.cgroups import MOUNT, PROC, directories

_TRIES: Final = 20
_PAUSE_S: Final = 0.11
"""Of unprivileged users, Linux takes the niceness of one session each tenth of a second."""

_LEAST_SHARE: Final = 19
"""The niceness of a session (sched(7)): 19 has 1.5 % of the share of another."""

_SMALL_SHARE: Final = 10
"""Of a session or a process: 10 has 11 % of the share of another."""


def cpu_budget() -> int:
    """CPUs that this process may keep busy, at least 1: its affinity, cut by the quotas of its cgroups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = ceil(cpu_quota()[0])
    return max(1, min(allowed, quota)) if quota else max(1, allowed)


def yield_processors() -> None:
    """Let this process have only time of processors that no other one wants (``SCHED_IDLE`` of sched(7)).

    Threads that are started later are like the one that calls it. Without such a thing, nothing changes.

    A session has a share of its own, whatever its processes are like: that of a session that this process leads is made
    as small as it can be.
    """
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            _share(os.getpid(), _LEAST_SHARE)


def lower_priority(leader: int) -> None:
    """Let all processes of a session have a tenth of the processors' time that others have, where there is not enough.

    They keep so much that they still answer in time. It cannot be undone without privileges. Blocks.

    Args:
        leader: the process that leads the session, and a process group. Those that its descendants lead are meant, too.
    """
    processes = [leader]
    for process in processes:  # grows meanwhile
        with suppress(OSError):  # it may have ended
            if os.getsid(process) == process:
                os.setpriority(os.PRIO_PGRP, process, _SMALL_SHARE)
                _share(process, _SMALL_SHARE)
        with suppress(OSError):
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                processes += map(int, children.read_text().split())


def _share(leader: int, niceness: int) -> None:
    """Give the session of a process a niceness.

    Raises:
        OSError: that is not possible here.
    """
    for left in range(_TRIES - 1, -1, -1):
        try:
            Path(f"/proc/{leader}/autogroup").write_text(str(niceness))
        except BlockingIOError:
            if not left:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def cpu_quota(proc: Path = PROC, mount: Path = MOUNT) -> tuple[float, Path | None]:
    """The least limit of this process's cgroups in CPUs, and the cgroup that has it; 0 and None for no limit."""
    quotas = [(_own_quota(each), each) for each in directories("cpu", proc, mount)]
    return min((found for found in quotas if found[0]), key=itemgetter(0), default=(0.0, None))


def _own_quota(cgroup: Path) -> float:
    """The cgroup's own limit in CPUs, of version 2 or 1; 0 for none."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
        if limit == "max":
            return 0
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu.cfs_period_us").read_text()
        except OSError:
            return 0
    return max(0.0, int(limit) / int(period))
