"""The cgroups that this process is in: its own and those around it, each of which limits it."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
MOUNT: Final = Path("/sys/fs/cgroup")


def directories(controller: str, proc: Path = PROC, mount: Path = MOUNT) -> list[Path]:
    """Where the kernel shows these cgroups, the process's own first and the outermost last.

    Those of version 2 and, for the controller, of version 1; some may not be there. Inside a container the path of the
    process's cgroup may be the host's, of which the mount shows nothing; its root is the container's cgroup then.

    Args:
        controller: "memory", "cpu" or "cpuacct".
        proc: where the kernel tells of processes.
        mount: where the cgroups are mounted.
    """
    paths = {mount: "/", mount / controller: "/"}
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths[mount] = path
        elif controller in controllers.split(","):
            paths[mount / controller] = path
    return [
        root.joinpath(*parts[:depth])
        for root, path in paths.items()
        for parts in [[part for part in path.split("/") if part not in ("", "..")]]
        for depth in range(len(parts), -1, -1)
    ]
