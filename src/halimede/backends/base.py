"""The interface of a backend: open a model version, complete its configuration, make instances, run batches.

Everything here is called off the event loop and may block, with one exception: `Instance.execute` may be
called on the loop if the instance says that it never blocks and its batches were measured to be tiny.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from halimede.backends.batch import Batch
from halimede.backends.initial_states import initial_states
from halimede.backends.states import SequenceStates
from halimede.backends.text_counts import TextCounts
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.device_tensors import Device
from halimede.core.host_policies import HostPolicy
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model version comes from, and how it is configured.

    Attributes:
        name: the model's name in the server.
        version: the version.
        directory: the model's directory, which holds the version directories.
        config: the configuration; `BackendModel.complete_config` changes it in place.
    """

    name: str
    version: int
    directory: Path
    config: ModelConfig

    @property
    def client_name(self) -> str:
        """What clients call the model."""
        return self.config.name or self.name

    @property
    def version_directory(self) -> Path:
        """The directory of this version's files."""
        return self.directory / str(self.version)


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the command line says to a backend, and what the machine has.

    Attributes:
        settings: `--backend-config` for this backend, over those for every backend.
        cpu_threads: CPU threads that all instances of the server share out.
        gpus: device numbers of the GPUs that this server may use.
        verbose: the log's verbosity, 0 and up.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    cpu_threads: int = 1
    gpus: tuple[int, ...] = ()
    verbose: int = 0


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance to make.

    Attributes:
        name: `<group>_<index>`.
        index: its number in the model, from 0.
        kind: ``KIND_CPU``, ``KIND_GPU`` or ``KIND_MODEL``.
        device: the GPU's number for KIND_GPU, else 0.
        policy: on which processors it runs; None for any.
    """

    name: str
    index: int = 0
    kind: str = "KIND_CPU"
    device: int = 0
    policy: HostPolicy | None = None

    def placed(self) -> AbstractContextManager[None]:
        """Lets the calling thread, and those that it starts meanwhile, run where the instance is to."""
        return nullcontext() if self.policy is None else self.policy.held()


class Instance(ABC):
    """One place where batches run, one at a time.

    Attributes:
        may_block: it may wait for something other than the processor, so it never runs on the event loop.
        repeatable: running a request a second time gives the same and changes nothing.
        device: where it takes inputs that are there already, and leaves outputs that may stay there; None if all pass
            through the host.
        states: what it keeps for sequences, if the model has implicit state and runs in this process.
        on_counts: told now and then, in the thread of a language model, what that has counted; None for nobody.
    """

    may_block: bool = True
    repeatable: bool = False
    device: Device | None = None
    states: SequenceStates | None = None
    on_counts: Callable[[TextCounts], None] | None = None

    @property
    def requests(self) -> Collection[InferRequest]:
        """The requests whose execution is not over, if what runs here may call other models."""
        return ()

    @property
    def reserved_bytes(self) -> int:
        """Memory that it has reserved when it was made, and not used yet: it counts as if it were used."""
        return 0

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes of its own in which it runs now, none if it runs in the server's."""
        return ()

    @abstractmethod
    def execute(self, batch: Batch) -> None:
        """Run the batch: set `batch.responses`, one a request, in order; or, decoupled, `batch.send` them.

        Raises:
            HalimedeError: the whole batch failed.
        """

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Forget what is kept of a sequence, none of whose requests runs. Called on the event loop.

        Args:
            key: `InferRequest.sequence_key` of its requests.
            correlation_id: what clients call it.
            reason: why it ended, one of `core.sequences`.
        """
        if self.states is not None:
            self.states.end(key)

    def rest(self) -> None:
        """Give back what only runs need, as none has come for a while. Called on the thread that they are on."""

    def close(self) -> None:
        """Give back what it holds."""


class BackendModel(ABC):
    """One model version, opened by its framework; `close` gives everything back.

    Attributes:
        creates_side_by_side: instances are made in several threads at once, as that takes less time.
    """

    creates_side_by_side: bool = False

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        self.source = source
        self.options = options
        self._initial_states: dict[str, Array] | None = None

    def complete_config(self) -> None:
        """Fill in place what the configuration leaves out and the model's files tell.

        May change max_batch_size, input, output, the scheduling choice if unset, and the transaction policy.

        Raises:
            HalimedeError: configuration and model contradict each other.
        """

    def check_config(self) -> None:
        """Hold the complete configuration against the model.

        Raises:
            HalimedeError: they contradict each other; the text says where.
        """

    @abstractmethod
    def create_instance(self, spec: InstanceSpec) -> Instance:
        """A new instance. May be called from several threads at once.

        Raises:
            HalimedeError: the framework refuses the model.
        """

    def sequence_states(self) -> SequenceStates | None:
        """For an instance: what keeps the states of sequences; None for a model without.

        Raises:
            HalimedeError: what sequences begin with cannot be read.
        """
        config = self.source.config
        if not config.sequence_batching.state:
            return None
        if self._initial_states is None:  # two that make it at a time make the same
            self._initial_states = initial_states(config, self.source.directory)
        return SequenceStates(Signature.from_config(config), self._initial_states)

    def close(self) -> None:
        """Give back what is shared by the instances, which are closed already."""
