"""What the host needs of wherever instances run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from halimede.hosting.identity import EndpointId


@dataclass(frozen=True, slots=True)
class Resources:
    """What an instance may use, or what there is.

    Attributes:
        cpus: processors.
        memory_bytes: main memory.
        gpus: NVIDIA GPUs.
        reserved_bytes: of an instance: so much of the memory is given to no other one.
    """

    cpus: float
    memory_bytes: int
    gpus: int = 0
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """An instance to start.

    Attributes:
        id: its name, of letters, digits and hyphens; no other instance ever has it.
        account, region: where the endpoint's name holds.
        endpoint: the endpoint's name.
        variant: the variant's name.
        fleet: which fleet of the endpoint it belongs to; an update makes another one.
        image: what runs, as the user named it.
        environment: variables of the container, without those of the platform.
        model: the directory of the extracted archive, which the instance sees as `/opt/ml/model`; None for a
            multi-model instance, or one without model data.
        multi_model: it is to serve many models.
        resources: what it may use.
    """

    id: str
    account: str
    region: str
    endpoint: str
    variant: str
    fleet: str
    image: str
    environment: Mapping[str, str]
    model: Path | None
    multi_model: bool
    resources: Resources

    @property
    def endpoint_id(self) -> EndpointId:
        """Whose it is."""
        return EndpointId(self.account, self.region, self.endpoint)


@dataclass(frozen=True, slots=True)
class RunningInstance:
    """A process that has been started; whether it answers is for others to find out.

    Attributes:
        request: what it was started from.
        host: where it listens.
        port: where it listens.
        pid: its process; 0 if that is on another machine.
        models: (multi-model) where the host puts extracted archives, one directory a model.
        seen_models: the same directory as the instance itself sees it, such as ``/opt/ml/models``.
        gpus: which of the GPUs that the host may use it has, from 0.
        unix_socket: where it listens as well: @ and a name of Linux's abstract namespace; "" for nowhere.
    """

    request: InstanceRequest
    host: str
    port: int
    pid: int = 0
    models: Path = field(default_factory=Path)
    seen_models: str = "/opt/ml/models"
    gpus: Sequence[int] = ()
    unix_socket: str = ""


OnExit = Callable[[str, str], None]
"""Called on the event loop with an instance's id and why it ended, when nobody asked it to."""


class Substrate(Protocol):
    """Starts, watches and ends instances. Called on the event loop."""

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        """Begin; the instances that an earlier process of the host left, and that still run."""

    async def launch(
        self, request: InstanceRequest, variables: Mapping[str, str] | None = None
    ) -> RunningInstance:
        """Start an instance; its process runs, and may not answer yet. Callers see it through: it is not cancelled.

        Args:
            request: the instance.
            variables: those of the platform, which may be secret, and so are written nowhere.

        Raises:
            ApiError: there is no room for it (``ResourceLimitExceeded``), or its image resolves to nothing that
                could be started (``ValidationException``); the text says what a user can do.
        """

    async def failure(self, instance_id: str) -> str:
        """What an instance that runs has printed about why it does not answer, as the rest of a sentence.

        "" if it has printed nothing, or there is no such instance.
        """

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        """End an instance and everything that it started: asked first, killed after `grace_s`.

        Unknown ids are done. It may be cancelled and called again.
        """

    def total(self) -> Resources:
        """What there is."""

    def free(self) -> Resources:
        """What no instance has been given."""

    async def stop(self, *, leave: bool) -> None:
        """End; `leave` lets the instances run on, for the next process of the host to find."""
