"""What workers need of the server: its event loop, processes to run in, and somebody to answer their calls."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from halimede.core.clock import Clock
from halimede.core.host_policies import HostPolicy
from halimede.core.idle_cores import IdleCores
from halimede.core.requests import InferRequest
from halimede.workers.busy_wait import BusyWait
from halimede.workers.call_server import ModelCall
from halimede.workers.channel import Channel, Message
from halimede.workers.environments import Environments
from halimede.workers.memory import PeerMemory
from halimede.workers.process import WorkerProcess
from halimede.workers.zygote import Zygotes

Result = TypeVar("Result")


Target = tuple[str, int]
"""A model as another one calls it: its name and version, -1 for any."""


class WorkerName(NamedTuple):
    """Which instance of which model a worker runs; the instance is "" while a configuration is completed."""

    model: str
    version: int
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a worker's process is started with.

    Attributes:
        python: the interpreter; None for the server's own.
        environment: variables that are set, or with None removed, on top of the server's.
        settings: what `halimede_worker.main.run` is told.
    """

    settings: Mapping[str, Any]
    python: Path | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)


def policy_settings(policy: HostPolicy | None) -> dict[str, Any]:
    """What the settings of a worker say of the processors that it runs on."""
    return {} if policy is None else {"host_policy": policy.document()}


class Attached(Protocol):
    """What serves one worker process beside its work. Called on the event loop."""

    def message(self, message: Message) -> None:
        """A message of its control socket, about calls, metrics and logs."""

    def begun(self, pid: int) -> None:
        """The process is known."""

    def serving(self) -> None:
        """Its model has been loaded."""

    def printed(self, data: bytes, error: bool) -> None:
        """Something that it printed, on standard output or error; b"" when that is closed."""

    def infer(self, call: ModelCall) -> InferRequest | None:
        """Run a call of another model, which is answered through its `respond`: the request that it became."""

    def handle(self, message: Message) -> Any:
        """What comes of another call, or an awaitable of it.

        Raises:
            HalimedeError: it is refused.
        """

    def answer_here(self, targets: Collection[Target]) -> bool:
        """Whether calls of these models from the loop would be answered before they return."""

    def close(self) -> None:
        """The process is gone."""


class Services(Protocol):
    """Who serves workers beside their work: the engine."""

    def attach(
        self, name: WorkerName, memory: PeerMemory, control: Channel, on_call: Callable[[], None]
    ) -> Attached:
        """A worker process begins; `on_call` is to be told whenever its loaded model calls."""


class Load:
    """What workers have to do.

    Attributes:
        inflight: requests that are in flight in models that run in workers; those whose executions wait for others
            do not count.
    """

    def __init__(self) -> None:
        self.inflight = 0


class WorkerHost:
    """Where workers run and whom they belong to.

    Attributes:
        loop: the event loop.
        clock: the time.
        threads: for what blocks.
        finalize_seconds: how long a worker may take to end.
        environments: the interpreters that models bring.
        load: what there is to do.
        busy_wait: whether the server and workers may wait for each other with the processor busy.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        clock: Clock,
        services: Services,
        finalize_seconds: float,
        busy_wait: BusyWait | None = None,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.threads = ThreadPoolExecutor(4, "halimede-workers")
        self.finalize_seconds = finalize_seconds
        self.environments = Environments()
        self.load = Load()
        self.busy_wait = busy_wait or BusyWait(0, 1, IdleCores())
        self._services = services
        self._zygotes = Zygotes()

    def spawn(self, launch: Launch, name: WorkerName) -> WorkerProcess:
        """A new process. Blocks.

        Raises:
            InternalError: it cannot be started.
        """
        settings = dict(launch.settings)
        return self._zygotes.spawn(self.loop, launch.python, launch.environment, settings, name.instance)

    def attach(
        self, name: WorkerName, memory: PeerMemory, control: Channel, on_call: Callable[[], None]
    ) -> Attached:
        """Who serves a new worker process."""
        return self._services.attach(name, memory, control, on_call)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it on the event loop, from a thread that waits for the result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Give everything back; no worker runs any more. Blocks."""
        self._zygotes.close()
        self.environments.close()
        self.threads.shutdown()
