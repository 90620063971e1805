"""What an instance used, as it is told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Utilization:
    """What an instance takes, in per cent.

    Attributes:
        cpu: of one processor each: up to 100 times their number.
        memory: of what its type has.
        disk: of the disk that its models are on.
    """

    cpu: float
    memory: float
    disk: float


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What was used of some GPUs, in per cent of one each; None where they do not tell.

    Attributes:
        busy: time in which some kernel ran.
        memory: memory that was in use, whoever used it.
    """

    busy: float | None
    memory: float | None


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """What an instance used.

    Attributes:
        utilization: processors, memory and disk.
        gpus: its GPUs.
    """

    utilization: Utilization
    gpus: GpuUse
