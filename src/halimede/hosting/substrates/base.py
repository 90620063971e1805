"""What the host needs of wherever instances run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.store.source import ModelSource, Offer
from halimede.hosting.substrates.use import InstanceUse

ONLY = ""
"""The name of the archive of an instance of one container; others are called as their containers."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What an instance may use, or what there is.

    Attributes:
        cpus: processors.
        memory_bytes: main memory.
        gpus: NVIDIA GPUs.
        reserved_bytes: of an instance: so much of the memory is given to no other one.
        custom: resources that a cluster's nodes were started with, by name.
    """

    cpus: float
    memory_bytes: int
    gpus: int = 0
    reserved_bytes: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One of several containers of an instance.

    Attributes:
        name: tells it from the others; of letters, digits and hyphens.
        image: what runs, as the user named it.
        environment: its variables, without those of the platform.
        model: the directory of its extracted archive, as of an instance.
    """

    name: str
    image: str
    environment: Mapping[str, str]
    model: Path | None = None


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
        model: the directory of the extracted archive where the instance runs, which it sees as `/opt/ml/model`; None
            for a multi-model instance, for one without model data, and before its archive is there.
        multi_model: it is to serve many models.
        resources: what it may use.
        containers: its containers, if there are several; image, environment and model are theirs then.
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
    containers: Sequence[ContainerRequest] = ()

    @property
    def endpoint_id(self) -> EndpointId:
        """Whose it is."""
        return EndpointId(self.account, self.region, self.endpoint)

    @property
    def images(self) -> Sequence[str]:
        """What runs, as the user named it."""
        return [container.image for container in self.containers] or [self.image]

    def with_models(self, models: Mapping[str, Path]) -> "InstanceRequest":
        """The same with the directories of extracted archives, by container; the only one is called ""."""
        containers = tuple(replace(each, model=models.get(each.name)) for each in self.containers)
        return replace(self, model=models.get(ONLY, self.model), containers=containers)

    def of_container(self, name: str) -> "InstanceRequest":
        """An instance of nothing but one of the containers."""
        [one] = [container for container in self.containers if container.name == name]
        return replace(self, image=one.image, environment=one.environment, model=one.model, containers=())


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
        node: which machine it runs on; "" if there is only this one.
    """

    request: InstanceRequest
    host: str
    port: int
    pid: int = 0
    models: Path = field(default_factory=Path)
    seen_models: str = "/opt/ml/models"
    gpus: Sequence[int] = ()
    unix_socket: str = ""
    node: str = ""


OnExit = Callable[[str, str], None]
"""Called on the event loop with an instance's id and why it ended, when nobody asked it to."""


class ModelArchive(Protocol):
    """The archive of a container of one model. Called on the event loop."""

    @property
    def timeout_s(self) -> float:
        """How long fetching it may take."""

    async def extracted(self) -> Path:
        """Its files on this machine, fetched and extracted unless they are there.

        Raises:
            ApiError: it cannot be had; the text says why, and what to do.
        """

    async def offer(self) -> Offer:
        """Where another machine fetches it from.

        Raises:
            ApiError: it cannot be had; the text says why, and what to do.
        """

    def progress(self) -> Callable[[int, int], None]:
        """Begin to tell how far a fetch has come: to be called with how many bytes there are, and of how many."""


class NodeUnreachableError(ApiError):
    """The machine of an instance cannot be reached now; others may."""

    def __init__(self, why: str) -> None:
        """An error whose text ends with the reason."""
        super().__init__(
            "ServiceUnavailable", f"the node of the instance cannot be reached now: {why}; try again", 503
        )


class ModelFiles(Protocol):
    """The extracted archives of a multi-model instance, where it runs. Called on the event loop."""

    @property
    def node(self) -> str:
        """Which machine they are on; "" if there is only this one."""

    async def fetch(self, name: str, url: str, source: ModelSource, timeout_s: float) -> int:
        """Fetch and extract an archive, of which there is nothing: the bytes that its files take on disk.

        Args:
            name: what the instance calls the model, whose files it sees at ``MODELS/NAME/model``.
            url: ``s3://…`` of the archive.
            source: has it.
            timeout_s: how long that may take.

        Raises:
            NodeUnreachableError: where the instance runs cannot be reached now, or is gone.
            ApiError: it cannot be had; the text says why. What has come of it stays, until `remove`.
        """

    async def remove(self, name: str) -> None:
        """Remove what there is of a model.

        Raises:
            NodeUnreachableError: where the instance runs cannot be reached now.
        """

    async def memory(self) -> int:
        """Bytes of memory that the instance's processes have for themselves; 0 if that cannot be known."""


def log_of(logs: Path, request: InstanceRequest) -> Path:
    """The file of what an instance prints, below the directory of all logs."""
    scope = request.endpoint_id.scope.directory(logs)
    return scope / request.endpoint / request.variant / f"{request.id}.log"


def containers_file(log: Path) -> Path:
    """Where the names of an instance's containers are, if there are several, beside its log."""
    return log.with_name(f"{log.name}.containers")


def line_lead(container: str) -> str:
    """How the lines of one of several containers begin in the log of their instance."""
    return f"{container} | "


def name_containers(log: Path, request: InstanceRequest) -> None:
    """Write down which containers the lines of a log are of, if there are several. Blocks.

    Raises:
        OSError: it cannot be written.
    """
    if request.containers:
        log.parent.mkdir(parents=True, exist_ok=True)
        containers_file(log).write_text("\n".join(container.name for container in request.containers))


class Substrate(Protocol):
    """Starts, watches and ends instances. Called on the event loop."""

    async def open(self) -> str:
        """Connect to where instances run: the address at which they reach this machine; "" for its loopback."""

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        """Begin; the instances that an earlier process of the host left, and that still run."""

    async def prepare(self, archive: ModelArchive) -> None:
        """Do once for many instances of an archive what can be: it is fetched, or found to be there.

        Raises:
            ApiError: it cannot be had.
        """

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        """Start an instance; its process runs, and may not answer yet. Callers see it through: it is not cancelled.

        Args:
            request: the instance.
            variables: those of the platform, which may be secret, and so are written nowhere.
            archives: those of its containers' models, by container; that of the only one is called "".

        Raises:
            ApiError: there is no room for it (``ResourceLimitExceeded``), or its image resolves to nothing that
                could be started (``ValidationException``), or an archive cannot be had; the text says what to do.
        """

    def files(self, instance: RunningInstance) -> ModelFiles:
        """The archives of a multi-model instance."""

    async def usage(self) -> Mapping[str, InstanceUse]:
        """What instances have used since the last call, by id; those that were not measured lack."""

    async def failure(self, instance_id: str) -> str:
        """What an instance that runs has printed about why it does not answer, as the rest of a sentence.

        "" if it has printed nothing, or there is no such instance.
        """

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        """End an instance and everything that it started: asked first, killed after `grace_s`.

        The launch of one that waits for room fails then. Unknown ids are done. It may be cancelled and called again.
        """

    def waiting(self, instance_id: str) -> str:
        """Why there is no room yet for an instance that is being launched; "" if there is, or nobody knows."""

    def largest(self) -> Resources:
        """The most that one instance can have."""

    async def stop(self, *, leave: bool) -> None:
        """End; `leave` lets the instances run on, for the next process of the host to find.

        It may be called again. Before `start`, the instances of an earlier process of the host run on in any case.
        """
