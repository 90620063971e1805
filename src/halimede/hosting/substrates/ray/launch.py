"""What an actor is told to start, and what it tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from halimede.hosting.substrates.images import Images

Progress = tuple[str, int, int]
"""Of an archive: whose it is, how many bytes there are, and of how many."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What holds for all instances of a host on all nodes.

    Attributes:
        host_id: which host they are of.
        directory: where nodes keep what they need, below a directory for the host and one for the node.
        disk_bytes: what extracted archives may take on a node; 0 for no limit.
    """

    host_id: str
    directory: Path
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instance asks of a node.

    Attributes:
        cpus: Ray's processors, which are the type's over the oversubscription.
        memory_bytes: memory that it reserves.
        gpus: GPUs.
        custom: resources that nodes were started with, by name.
    """

    cpus: float
    memory_bytes: int = 0
    gpus: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)

    def bundle(self) -> dict[str, float]:
        """As Ray's autoscaler and its nodes name resources."""
        named = {"CPU": self.cpus, "memory": float(self.memory_bytes), "GPU": float(self.gpus), **self.custom}
        return {name: amount for name, amount in named.items() if amount}


@dataclass(frozen=True, slots=True)
class Launch:
    """An instance to start on a node.

    Attributes:
        request: the instance.
        shape: what it asks of its node.
        variables: those of the platform.
        images: what runs for an image, on the nodes.
        settings: of the host.
        offers: where the archives of its containers' models are fetched from, by container.
        timeout_s: how long each may take.
    """

    request: InstanceRequest
    shape: Shape
    variables: Mapping[str, str]
    images: Images
    settings: NodeSettings
    offers: Mapping[str, Offer] = field(default_factory=dict)
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ActorState:
    """What an actor has of its instance.

    Attributes:
        request: the instance; None before it was told.
        shape: what that asks of its node.
        running: its process; None before that was started, and once it was told to end.
        exit_code: the process has ended by itself, as `subprocess` tells it; None if it has not.
    """

    request: InstanceRequest | None = None
    shape: Shape | None = None
    running: RunningInstance | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """What has happened to an instance.

    Attributes:
        log: what its process has printed, from the position that was asked for.
        progress: of the latest archive; None if nothing was fetched.
        exit_code: its process has ended, as `subprocess` tells it; None if it runs.
    """

    log: bytes
    progress: Progress | None = None
    exit_code: int | None = None
