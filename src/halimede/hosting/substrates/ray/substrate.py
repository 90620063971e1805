"""The substrate on a Ray cluster: what the host wants of it, whatever becomes of Ray's driver meanwhile."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from halimede.core import tasks
from halimede.core.backoff import Backoff
from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import (
    InstanceRequest,
    ModelArchive,
    OnExit,
    Resources,
    RunningInstance,
    log_of,
    name_containers,
)
from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.output import ended, failure_in
from halimede.hosting.substrates.ray.engine_process import EngineError, EngineLostError, EngineProcess
from halimede.hosting.substrates.ray.launch import ActorState, Launch, NodeSettings, Shape
from halimede.hosting.substrates.ray.messages import Event, LostError, UnusableNodeError
from halimede.hosting.substrates.ray.model_files import NodeModelFiles
from halimede.hosting.substrates.ray.own_cluster import OwnCluster
from halimede.hosting.substrates.ray.placement import Node
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.hosting.substrates.use import InstanceUse

logger = logging.getLogger("halimede")

_ADOPTING_S = 10.0
"""So long an actor may take to say what it has."""

_CHECKING_S = 5.0
"""So long the head of a cluster may take to accept a connection."""

_RECONNECTING_S = 1.0
_LONGEST_RECONNECTING_S = 15.0
_LOSSES = 5
"""So often an instance that is being started may lose its node."""

_RELAUNCH_S = 0.5
_LOOK_S = 5.0
_ANY = Resources(1 << 20, 1 << 60, 1 << 10)
"""Instance types have what they say. On a cluster of others' they have their GPUs always: a node may yet come."""

_STOPPING_S = 30.0
"""So long the host waits for a cluster on which there are instances to be ended."""

_REQUEST_S = 0.5
"""Wishes for nodes are told together."""


@dataclass(slots=True, eq=False)
class _Instance:
    """An instance that is being started, runs, or is being ended.

    Attributes:
        request: what it is started from.
        shape: what it asks of its node.
        running: what others know of it; None while it is being started.
        archives: of its containers' models, by container.
        progress: tells how far the fetches of those that have begun have come.
        waiting: why there is no room for it; "" if it is not known to wait.
        given_up: it has ended, or somebody has asked it to.
    """

    request: InstanceRequest
    shape: Shape
    running: RunningInstance | None = None
    archives: Mapping[str, ModelArchive] = field(default_factory=dict)
    progress: dict[str, Callable[[int, int], None]] = field(default_factory=dict)
    waiting: str = ""
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def asked(self) -> bool:
        """Nobody wants it any more."""
        return self.given_up.is_set()


class RaySubstrate:
    """Instances on a Ray cluster (`Substrate`). Lives on the event loop."""

    def __init__(
        self,
        directory: Path,
        images: Images,
        oversubscription: float,
        settings: RaySettings,
        *,
        only_here: bool = False,
    ) -> None:
        """A substrate that is not connected.

        Args:
            directory: where logs are, and what the host keeps of its cluster.
            images: what runs for an image, on the nodes.
            oversubscription: how many times a node's processors instances may be given.
            settings: of the cluster.
            only_here: the host can be reached from this machine only, of which those are warned that have others.
        """
        self._only_here = only_here
        self._directory = directory.absolute()
        self._logs = self._directory / "logs"
        self._images = images
        self._oversubscription = oversubscription
        self._settings = settings
        self._node_settings = NodeSettings(_host_id(directory), settings.node_directory, settings.disk_bytes)
        self._own = (
            None
            if settings.address
            else OwnCluster(self._directory, self._node_settings.host_id, lambda: self._engine.abandon())
        )
        self._address = settings.address
        self._engine = EngineProcess(self._happened, self._lost)
        self._connected = asyncio.Event()
        self._instances: dict[str, _Instance] = {}
        self._on_exit: OnExit = _ignore
        self._tasks = Tasks()
        self._wishes: asyncio.Task[None] | None = None
        self._wished: Sequence[Mapping[str, float]] = []
        self._is_started = False
        self._stopped = False
        self._largest = Resources(0, 0)

    # the cluster

    async def check(self) -> None:
        """Find out within seconds whether anything listens at the address of a cluster of others.

        Raises:
            EngineError: nothing does.
        """
        host, _, port = self._settings.address.rpartition(":")
        if not host or not port.isdecimal():  # Ray knows what it is, such as "auto"
            return
        try:
            async with asyncio.timeout(_CHECKING_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:  # a time that is over is one as well
            why = error.strerror or str(error) or f"no answer within {_CHECKING_S:g} seconds"
            msg = (
                f"nothing can be reached at {self._settings.address} ({why}). --ray-address must be the address and "
                f"port of Ray's head; 'ray status --address={self._settings.address}' must answer on this machine"
            )
            raise EngineError(msg) from None
        writer.close()

    async def open(self) -> str:
        """Connect to the cluster: the address at which its nodes reach this machine.

        Raises:
            EngineError: it cannot be reached. A cluster that was started for this is ended.
        """
        try:
            if self._own is not None:
                self._address = await self._own.start()
            await self._connect()
        except EngineLostError:
            await self.stop(leave=False)
            raise EngineError(f"the connection to the Ray cluster at {self._address} was lost") from None
        except BaseException:
            await self.stop(leave=False)
            raise
        return self._engine.address

    async def _connect(self) -> None:
        """Start an engine for the cluster."""
        await self.check()
        self._engine = EngineProcess(self._happened, self._lost)
        log = self._directory / "ray-engine.log"
        variables = {} if self._own is None else self._own.variables
        await self._engine.start(self._address, f"halimede-{self._node_settings.host_id}", log, variables)
        nodes = await self._engine.call("nodes")
        self._know(nodes)
        logger.info("connected to the Ray cluster at %s, which has %d nodes", self._address, len(nodes))

    def _most(self, nodes: Sequence[Node]) -> Resources:
        """What an instance can have on the largest node."""

        def most(name: str) -> float:
            return max((node.total.get(name, 0.0) for node in nodes), default=0.0)

        if not most("CPU"):  # what a node has that is to come, nobody knows
            return _ANY
        gpus = int(most("GPU")) if self._own is not None else _ANY.gpus
        return Resources(most("CPU"), int(most("memory")), gpus)

    def _know(self, nodes: Sequence[Node]) -> None:
        """These are the nodes now."""
        self._largest = self._most(nodes)
        others = sorted({node.address for node in nodes} - {self._engine.address})
        if others and self._only_here:
            self._only_here = False  # said once
            logger.warning(
                "the nodes at %s cannot fetch models from this host, which listens at this machine's loopback only; "
                "start it with --address=%s, or with --advertise-address",
                ", ".join(others),
                self._engine.address,
            )

    async def _look(self) -> None:
        """Know how large nodes are, which come and go."""
        while True:
            await asyncio.sleep(_LOOK_S)
            with suppress(EngineLostError, ApiError):
                self._know(await self._engine.call("nodes"))

    def _lost(self) -> None:
        """The engine has ended, as it does when the cluster's head is gone."""
        was_connected = self._connected.is_set()
        self._connected.clear()
        if was_connected and not self._stopped:
            logger.warning("the connection to the Ray cluster at %s is lost; instances run on", self._address)
            self._tasks.forever("connecting to the Ray cluster again", self._reconnect)

    async def _reconnect(self) -> None:
        """Connect again, and find out what has become of the instances."""
        backoff = Backoff(_RECONNECTING_S, _LONGEST_RECONNECTING_S)
        while True:
            await self._engine.close()
            try:
                if self._own is not None:
                    self._address = await self._own.start()
                await self._connect()
                await self._reconcile()
            except (EngineError, EngineLostError, ApiError, OSError) as error:
                logger.warning("%s; trying again", str(error) or "the connection to Ray was lost again")
                await backoff.pause()
            else:
                self._connected.set()
                return

    async def _reconcile(self) -> None:
        """End actors that nobody wants, and find out which instances have gone."""
        names = await self._engine.call("actors")
        for name in set(names) - self._instances.keys():
            await self._engine.call("terminate", name, 0.0)
        running = [each for each in self._instances.values() if each.running is not None and not each.asked]
        states = await asyncio.gather(*(self._adopt(each.request.id) for each in running))
        for instance, state in zip(running, states, strict=True):
            if state.running is None:
                self._ended(instance, "it was lost with a part of the Ray cluster")

    async def _adopt(self, name: str) -> ActorState:
        """What an actor has that another engine has started."""
        try:
            state: ActorState = await self._engine.call("adopt", name, self._logs, _ADOPTING_S)
        except (ApiError, LostError):
            return ActorState()
        return state

    # coming and going

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        """Begin; the instances that an earlier process of the host left, and that still run."""
        self._on_exit = on_exit
        self._is_started = True
        names = await self._engine.call("actors")
        await asyncio.gather(*(self._take_over(name) for name in names))
        self._tasks.forever("looking at the nodes of the Ray cluster", self._look)
        self._connected.set()
        return self.instances()

    async def _take_over(self, name: str) -> None:
        """Look after what an earlier process of the host has started; end it if it does not run, or is to end."""
        state = await self._adopt(name)
        has_ended = state.exit_code is not None
        if state.request is None or state.shape is None or state.running is None or has_ended:
            await self._engine.call("terminate", name, 0.0)
            return
        self._instances[name] = _Instance(state.request, state.shape, self._seen(state.running))
        logger.info("instance %s still runs (on the node %s)", name, state.running.host)

    def _shape(self, request: InstanceRequest) -> Shape:
        resources = request.resources
        return Shape(
            round(resources.cpus / self._oversubscription, 3),
            resources.reserved_bytes,
            resources.gpus,
            dict(resources.custom),
        )

    def _seen(self, running: RunningInstance) -> RunningInstance:
        """An instance as this machine sees it: only on its own node it can be reached by a Unix socket."""
        if running.node == self._engine.node:
            return running
        return replace(running, unix_socket="", pid=0)

    async def prepare(self, archive: ModelArchive) -> None:
        """Find out that an archive is there; nodes fetch it."""
        await archive.offer()

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        """Start an instance on a node; it waits for room.

        Raises:
            ApiError: there is no room for it for too long (``InsufficientInstanceCapacity``), its image resolves to
                nothing that the node could start (``ValidationException``), or an archive cannot be had.
        """
        shape = self._shape(request)
        instance = self._instances[request.id] = _Instance(request, shape, archives=archives or {})
        try:
            running = await self._launch(instance, variables or {})
        except LostError as error:
            self._instances.pop(request.id, None)
            raise ApiError("InternalFailure", f"the node of the instance is gone: {error}", 500) from None
        except BaseException:
            self._instances.pop(request.id, None)
            raise
        finally:
            instance.waiting = ""
            self._wish()
        with suppress(OSError):  # the log has their lines all the same
            await asyncio.to_thread(name_containers, self.log(request), request)
        instance.running = self._seen(running)
        return instance.running

    async def _launch(self, instance: _Instance, variables: Mapping[str, str]) -> RunningInstance:
        """Have an instance started, by however many engines, and on another node if its node goes meanwhile.

        Raises:
            LostError: its nodes have gone again and again.
        """
        losses = 0
        while True:
            await self._until_connected(instance)
            offers = {name: await archive.offer() for name, archive in instance.archives.items()}
            timeout_s = max((archive.timeout_s for archive in instance.archives.values()), default=0.0)
            launch = Launch(
                instance.request,
                instance.shape,
                variables,
                self._images,
                self._node_settings,
                offers,
                timeout_s,
            )
            try:
                running: RunningInstance = await self._engine.call(
                    "launch", launch, self._logs, self._settings.capacity_wait_s, spread=self._settings.spread
                )
                return running
            except EngineLostError:
                continue
            except UnusableNodeError as error:
                raise ApiError("InternalFailure", str(error), 500) from None
            except LostError as error:
                losses += 1
                if losses == _LOSSES or instance.asked:
                    raise
                logger.warning(
                    "instance %s is started elsewhere: its node is gone: %s", instance.request.id, error
                )
                await asyncio.sleep(_RELAUNCH_S)

    async def _until_connected(self, instance: _Instance) -> None:
        """Return once there is an engine.

        Raises:
            ApiError: the instance is not wanted any more.
        """
        await tasks.first_of(self._connected.wait(), instance.given_up.wait())
        if instance.asked:
            raise ApiError("InternalFailure", "the instance is not wanted any more", 500)

    def waiting(self, instance_id: str) -> str:
        """Why an instance that is being started is not placed yet; "" if it is, or not known to wait."""
        instance = self._instances.get(instance_id)
        return "" if instance is None else instance.waiting

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        """End an instance and everything that it started; one that waits for room waits no more."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        instance.given_up.set()
        try:
            await self._engine.call("terminate", instance_id, grace_s)
        except EngineLostError:
            pass  # what is left of it is ended when the cluster is there again
        except ApiError as error:
            logger.warning("instance %s: %s", instance_id, error.message)
        if instance.running is not None:
            self._instances.pop(instance_id, None)

    def _ended(self, instance: _Instance, reason: str) -> None:
        if instance.asked:
            return
        instance.given_up.set()
        name = instance.request.id
        self._tasks.start(f"ending what is left of instance {name}", self.terminate(name, 0.0))
        self._on_exit(name, reason)

    # what the engine tells

    def _happened(self, event: Event) -> None:
        name, *details = event.arguments
        instance = self._instances.get(name)
        if instance is None:
            return
        match event.name:
            case "waiting":
                if details[0] and details[0] != instance.waiting:
                    logger.warning("instance %s waits: %s", name, details[0])
                instance.waiting = details[0]
                self._wish()
            case "progress":
                container, *counts = details
                if container not in instance.progress and container in instance.archives:
                    instance.progress[container] = instance.archives[container].progress()
                if container in instance.progress:
                    instance.progress[container](*counts)
            case "exited" if instance.running is not None:
                self._ended(instance, ended(details[0]) + failure_in(self.log(instance.request)))
            case "lost" if instance.running is not None:
                self._ended(instance, f"its node or its actor is gone: {details[0]}")

    def _wish(self) -> None:
        """Ask Ray's autoscaler for the nodes that all instances need together, while some wait for room."""
        if self._wishes is None or self._wishes.done():
            self._wishes = self._tasks.forever("asking Ray for nodes", self._tell_wishes)

    async def _tell_wishes(self) -> None:
        while True:
            await asyncio.sleep(_REQUEST_S)
            every = [each for each in self._instances.values() if not each.asked]
            wished = [each.shape.bundle() for each in every] if any(each.waiting for each in every) else []
            if wished == self._wished:
                return
            with suppress(EngineLostError, ApiError):
                await self._engine.call("request_resources", wished)
                self._wished = wished

    # what is there

    def instances(self) -> list[RunningInstance]:
        """The instances that run."""
        return [each.running for each in self._instances.values() if each.running is not None]

    def largest(self) -> Resources:
        """The most that one instance can have; GPUs are never fewer than its type says on a cluster of others'."""
        return self._largest

    def files(self, instance: RunningInstance) -> NodeModelFiles:
        """The archives of a multi-model instance."""
        return NodeModelFiles(instance, self._ask, self._connected.wait)

    async def _ask(self, *arguments: Any) -> Any:
        return await self._engine.call("ask", *arguments)

    async def usage(self) -> Mapping[str, InstanceUse]:
        """What instances have used since the last call, by id."""
        try:
            uses: Mapping[str, InstanceUse] = await self._engine.call("usage")
        except (EngineLostError, ApiError):
            return {}
        return uses

    def log(self, request: InstanceRequest) -> Path:
        """The file of what an instance prints, which is brought here from its node."""
        return log_of(self._logs, request)

    async def failure(self, instance_id: str) -> str:
        """What an instance that runs has printed about why it does not answer, as the rest of a sentence."""
        instance = self._instances.get(instance_id)
        return "" if instance is None else await asyncio.to_thread(failure_in, self.log(instance.request))

    async def stop(self, *, leave: bool) -> None:
        """End, once; `leave` lets the instances run on, for the next process of the host to find.

        Before `start`, the instances of an earlier process of the host run on in any case.
        """
        if self._stopped:
            return
        leave = leave or not self._is_started
        if not leave:
            await asyncio.gather(*(self.terminate(each) for each in list(self._instances)))
            if self._own is None and not self._connected.is_set():
                with suppress(TimeoutError):  # whoever connects again ends those that are not known any more
                    await asyncio.wait_for(self._connected.wait(), _STOPPING_S)
        self._stopped = True
        self._tasks.cancel()
        if self._wished and not leave:
            with suppress(EngineLostError, ApiError):
                await self._engine.call("request_resources", [])
        self._connected.clear()
        await self._engine.close()
        if self._own is not None:
            if leave and (self._is_started or self._own.is_found):
                self._own.leave()
            else:
                await self._own.stop()


def _host_id(directory: Path) -> str:
    """What tells this host's actors from those of others on the same cluster."""
    file = directory / "host-id"
    try:
        return file.read_text().strip()
    except OSError:
        directory.mkdir(parents=True, exist_ok=True)
        name = secrets.token_hex(8)
        file.write_text(f"{name}\n")
        return name


def _ignore(_: str, __: str) -> None:
    """Nobody wants to know yet."""
