"""Instances as processes of this machine, each with directories of its own.

DIRECTORY/instances/ID/instance.json                   what runs, for the next process of the host to find; removed
                                                       before the instance is told to end
DIRECTORY/instances/ID/models                          (multi-model) extracted archives
DIRECTORY/logs/ACCOUNT/REGION/ENDPOINT/VARIANT/ID.log  what it prints
"""

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from halimede.core.ports import free_port
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
from halimede.hosting.substrates.instance_file import (
    InstanceFile,
    read_instance_file,
    remove_instance_file,
)
from halimede.hosting.substrates.model_files import LocalModelFiles
from halimede.hosting.substrates.output import ended, failure_in
from halimede.hosting.substrates.processes import Watched, end_marked, start_time
from halimede.hosting.substrates.program import HOST, can_isolate
from halimede.hosting.substrates.spawn import Place, spawn
from halimede.hosting.substrates.usage.meter import UsageMeter
from halimede.hosting.substrates.use import InstanceUse

logger = logging.getLogger("halimede")

_GIB = 1 << 30

_BESIDE = (
    "An update starts its instances beside those that serve and needs room for both: where there is none, delete the "
    "endpoint and create it anew"
)

_PATIENCE_S = 1.0
"""So long the processes that an instance leaves behind may take to notice that it has ended."""


@dataclass(slots=True, eq=False)
class _Instance:
    """An instance that is being started, runs, or is being ended.

    Attributes:
        request: what it is started from.
        port: where it is to listen.
        gpus: which of the host's GPUs it has, from 0.
        running: what others know of it; None while it is being started.
        watched: its process; None while it is being started.
        process: the same, if this process of the host started it.
        asked: it has ended, or somebody has asked it to.
    """

    request: InstanceRequest
    port: int
    gpus: list[int]
    running: RunningInstance | None = None
    watched: Watched | None = None
    process: "subprocess.Popen[bytes] | None" = None
    asked: bool = False


class LocalSubstrate:
    """Processes of this machine. Lives on the event loop."""

    def __init__(
        self, directory: Path, images: Images, machine: Resources, oversubscription: float = 8.0
    ) -> None:
        """A substrate.

        Args:
            directory: where instances have their directories and logs.
            images: what runs for an image.
            machine: what there is.
            oversubscription: how many times the machine's processors instances may have been given.
        """
        self._directory = directory.absolute()
        self._images = images
        self._machine = machine
        self._oversubscription = oversubscription
        self._instances: dict[str, _Instance] = {}
        self._clearing = Tasks()
        self._on_exit: OnExit = _ignore
        self._isolates = False
        self._is_stopped = False
        self._usage = UsageMeter(self.instances)

    async def check(self) -> None:
        """There is nothing to reach."""

    async def open(self) -> str:
        """There is nothing to connect to."""
        return ""

    async def start(self, on_exit: OnExit) -> Sequence[RunningInstance]:
        """Begin; the instances that an earlier process of the host left, and that still run."""
        self._on_exit = on_exit
        self._isolates = await asyncio.to_thread(can_isolate)
        if not self._isolates:
            logger.warning(
                "user namespaces are not allowed here: instances see SAGEMAKER_BASE_DIR instead of /opt/ml, and share "
                "/dev/shm"
            )
        for found in await asyncio.to_thread(lambda: list(self._left())):
            self._adopt(found)
        await asyncio.to_thread(self._tidy)
        await self._usage.start()
        return self.instances()

    def _left(self) -> Iterator[InstanceFile]:
        """What instances left files of."""
        (self._directory / "instances").mkdir(parents=True, exist_ok=True)
        for directory in sorted((self._directory / "instances").iterdir()):
            try:
                found = read_instance_file(directory)
            except ValueError as error:
                logger.warning("%s", error)
                continue
            if found is not None:
                yield found

    def _adopt(self, found: InstanceFile) -> None:
        """Take an instance over, if it still runs."""
        running = found.running
        instance = _Instance(running.request, running.port, found.gpus, running)
        try:
            watched = Watched(running.pid, lambda: self._ended(instance))
        except (OSError, TypeError):
            return
        if not found.began or start_time(running.pid) != found.began:  # its number is another process's now
            watched.forget()
            return
        instance.watched = watched
        self._instances[running.request.id] = instance
        logger.info("instance %s still runs (process %d)", running.request.id, running.pid)

    def _tidy(self) -> None:
        """End and remove what is left of instances that do not run."""
        every = self._directory / "instances"
        known = [every / name for name in self._instances]
        end_marked(every, _PATIENCE_S, known)
        for directory in every.iterdir():
            if directory not in known:
                shutil.rmtree(directory, ignore_errors=True)

    async def prepare(self, archive: ModelArchive) -> None:
        """Fetch and extract an archive."""
        await archive.extracted()

    async def launch(
        self,
        request: InstanceRequest,
        variables: Mapping[str, str] | None = None,
        archives: Mapping[str, ModelArchive] | None = None,
    ) -> RunningInstance:
        """Start an instance; its process runs, and may not answer yet.

        Args:
            request: the instance.
            variables: those of the platform.
            archives: those of its containers' models, by container; that of the only one is called "".

        Raises:
            ApiError: there is no room for it (``ResourceLimitExceeded``), its image resolves to nothing that could
                be started (``ValidationException``), an archive cannot be had, or its directory cannot be made
                (``InternalFailure``).
        """
        if archives:
            request = request.with_models(
                {name: await archive.extracted() for name, archive in archives.items()}
            )
        for image in request.images:
            self._images.command(image)
        self._check_room(request)
        gpus = self._free_gpus()[: request.resources.gpus]
        instance = self._instances[request.id] = _Instance(request, self._free_port(), gpus)
        try:
            process, running = await asyncio.to_thread(self._spawn, instance, variables or {})
        except Exception:
            del self._instances[request.id]
            await asyncio.to_thread(shutil.rmtree, self._at(request), ignore_errors=True)
            raise
        instance.process, instance.running = process, running
        instance.watched = Watched(process.pid, lambda: self._ended(instance))
        return running

    def _at(self, request: InstanceRequest) -> Path:
        return self._directory / "instances" / request.id

    def _spawn(
        self, instance: _Instance, variables: Mapping[str, str]
    ) -> "tuple[subprocess.Popen[bytes], RunningInstance]":
        """Make an instance's directory and start its process."""
        request, directory = instance.request, self._at(instance.request)
        place = Place(directory, self.log(request), HOST, instance.port, instance.gpus, self._isolates)
        process, running = spawn(request, place, self._images, variables)
        try:
            name_containers(place.log, request)
            InstanceFile(running, start_time(process.pid), instance.gpus).write(directory)
        except OSError as error:  # it runs all the same
            logger.warning("instance %s will not outlive this host: %s", request.id, error)
        return process, running

    def _check_room(self, request: InstanceRequest) -> None:
        free = self.free()
        if request.resources.custom:
            named = ", ".join(request.resources.custom)
            msg = f"the instance asks for {named}, which only nodes of a cluster have: use --substrate ray"
            raise ApiError("ValidationException", msg)
        if request.resources.cpus > free.cpus:
            machine = self._machine
            msg = (
                f"no room for another instance of {request.resources.cpus:g} processors: {len(self._instances)} "
                f"instances have {machine.cpus * self._oversubscription - free.cpus:g} of the "
                f"{machine.cpus * self._oversubscription:g} that this machine of {machine.cpus:g} gives out. Delete "
                f"endpoints, lower instance counts, or raise --oversubscription. {_BESIDE}"
            )
            raise ApiError("ResourceLimitExceeded", msg)
        if request.resources.reserved_bytes > free.memory_bytes:
            wanted, left, every = (
                each / _GIB
                for each in (
                    request.resources.reserved_bytes,
                    free.memory_bytes,
                    self._machine.memory_bytes,
                )
            )
            msg = (
                f"no room for another instance that reserves {wanted:g} GiB of memory: {left:.1f} of the {every:.1f} "
                f"GiB of this machine are not reserved. Delete endpoints, lower instance counts, or use a type that "
                f"reserves less. {_BESIDE}"
            )
            raise ApiError("ResourceLimitExceeded", msg)
        if request.resources.gpus > free.gpus:
            msg = (
                f"no room for another instance of {request.resources.gpus} GPUs: {free.gpus} of the "
                f"{self._machine.gpus} of this machine are free. Delete endpoints, lower instance counts, or use a "
                f"type with fewer GPUs. {_BESIDE}"
            )
            raise ApiError("ResourceLimitExceeded", msg)

    def _free_gpus(self) -> list[int]:
        taken = {gpu for instance in self._instances.values() for gpu in instance.gpus}
        return [gpu for gpu in range(self._machine.gpus) if gpu not in taken]

    def _free_port(self) -> int:
        """A port that nobody listens at, and that no instance was given: an instance takes a while to listen."""
        return free_port(HOST, {instance.port for instance in self._instances.values()})

    def waiting(self, _: str) -> str:
        """Nothing waits for room here: a launch without room fails."""
        return ""

    def largest(self) -> Resources:
        """What there is."""
        return self._machine

    def free(self) -> Resources:
        """What no instance has been given; of memory what none has reserved."""
        given = sum(instance.request.resources.cpus for instance in self._instances.values())
        reserved = sum(instance.request.resources.reserved_bytes for instance in self._instances.values())
        return replace(
            self._machine,
            cpus=self._machine.cpus * self._oversubscription - given,
            memory_bytes=self._machine.memory_bytes - reserved,
            gpus=len(self._free_gpus()),
        )

    def instances(self) -> list[RunningInstance]:
        """The instances that run."""
        return [each.running for each in self._instances.values() if each.running is not None]

    def log(self, request: InstanceRequest) -> Path:
        """The file of what an instance prints."""
        return log_of(self._directory / "logs", request)

    def _ended(self, instance: _Instance) -> None:
        """An instance's process has ended."""
        reason = self._reason(instance)
        if instance.asked:
            return
        instance.asked = True
        what = f"clearing up after instance {instance.request.id}"
        self._clearing.start(what, self._clear(instance))
        self._on_exit(instance.request.id, reason)

    def _reason(self, instance: _Instance) -> str:
        """Why it has ended: its status, and what it printed about that."""
        status = "it ended" if instance.process is None else ended(instance.process.wait())
        return status + failure_in(self.log(instance.request))

    async def _clear(self, instance: _Instance) -> None:
        """End what the process has left, and forget it."""
        directory = self._at(instance.request)
        try:
            await asyncio.to_thread(end_marked, directory, _PATIENCE_S)
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        finally:
            self._instances.pop(instance.request.id, None)

    def files(self, instance: RunningInstance) -> LocalModelFiles:
        """The archives of a multi-model instance."""
        return LocalModelFiles(instance)

    async def usage(self) -> Mapping[str, InstanceUse]:
        """What instances have used since the last call, by id."""
        return await self._usage.take()

    async def failure(self, instance_id: str) -> str:
        """What an instance that runs has printed about why it does not answer, as the rest of a sentence."""
        instance = self._instances.get(instance_id)
        return "" if instance is None else await asyncio.to_thread(failure_in, self.log(instance.request))

    async def terminate(self, instance_id: str, grace_s: float = 30.0) -> None:
        """End an instance and everything that it started: asked first, killed after `grace_s`."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.watched is None:
            return
        instance.asked = True
        with suppress(OSError):
            await asyncio.to_thread(remove_instance_file, self._at(instance.request))
        await instance.watched.end(grace_s)
        await self._clear(instance)

    async def stop(self, *, leave: bool) -> None:
        """End, once; `leave` lets the instances run on, for the next process of the host to find."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if leave:
            for instance in self._instances.values():
                if instance.watched is not None:
                    instance.watched.forget()
                if instance.process is not None and instance.process.returncode is None:
                    instance.process.returncode = 0  # it is not this process that will wait for it
        else:
            await asyncio.gather(*(self.terminate(each) for each in list(self._instances)))
        await self._clearing.wait()
        await self._usage.stop()


def _ignore(_: str, __: str) -> None:
    """Nobody wants to know yet."""
