"""A version of a model that is loaded: what a model is made of when requests come."""

from dataclasses import dataclass

from halimede.backends.base import BackendModel, Instance, InstanceSpec, ModelSource
from halimede.backends.states import SequenceStates
from halimede.config.signature import Signature
from halimede.core.memory import trim_memory
from halimede.engine.statistics import ModelStatistics


@dataclass(frozen=True, slots=True)
class LoadedInstance:
    """An instance and what it was made from.

    Attributes:
        spec: what its backend was told.
        passive: it gets no requests.
        instance: what was made.
        limits: the `rate_limiter` of its group, serialised.
    """

    spec: InstanceSpec
    passive: bool
    instance: Instance
    limits: bytes = b""


@dataclass(slots=True, eq=False)
class LoadedVersion:
    """A version that is ready to run.

    Attributes:
        source: where it came from, with its final configuration.
        signature: what it takes and gives.
        backend: the opened model.
        instances: at least one, which may be others later; passive ones get no requests.
        labels: output → class labels.
        statistics: what is counted of it; its warm-up so far.
    """

    source: ModelSource
    signature: Signature
    backend: BackendModel
    instances: tuple[LoadedInstance, ...]
    labels: dict[str, list[str]]
    statistics: ModelStatistics

    def processes(self) -> tuple[int, ...]:
        """The worker processes in which it runs now."""
        return tuple(pid for loaded in self.instances for pid in loaded.instance.processes)

    def reserved_bytes(self) -> int:
        """Memory that its instances have reserved when they were made, and not used then."""
        return sum(loaded.instance.reserved_bytes for loaded in self.instances)

    def sequence_states(self) -> tuple[SequenceStates, ...]:
        """What its instances keep for sequences in this process."""
        kept = [loaded.instance.states for loaded in self.instances]
        return tuple([states for states in kept if states is not None])

    def close(self) -> None:
        """Give everything back, the freed memory to the system too. Blocks."""
        for loaded in self.instances:
            loaded.instance.close()
        self.backend.close()
        trim_memory()
