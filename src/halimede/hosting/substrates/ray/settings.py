"""What the host is told of its Ray cluster."""

import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RaySettings:
    """A Ray cluster.

    Attributes:
        address: its address, ``HOST:PORT`` or ``auto``; "" for a cluster that the host starts on this machine.
        spread: a variant's instances are put on different nodes as far as there is room; otherwise nodes are filled
            one after the other.
        node_directory: where nodes keep what instances need, each on its own disk.
        disk_bytes: what extracted archives may take on a node; 0 for no limit.
        capacity_wait_s: how long an instance waits for room before its endpoint fails.
    """

    address: str = ""
    spread: bool = True
    node_directory: Path = Path(tempfile.gettempdir()) / "halimede-nodes"
    disk_bytes: int = 0
    capacity_wait_s: float = 1800.0
