"""The actor of an instance: it owns the instance's process on a node, its files and its log."""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import ray

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.holes import punch
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.node.store import HeldModel, NodeStore
from halimede.hosting.substrates.processes import Watched, end_marked
from halimede.hosting.substrates.ray.keeper import dismiss, start_keeper
from halimede.hosting.substrates.ray.launch import ActorState, Events, Launch, NodeSettings, Progress
from halimede.hosting.substrates.ray.node_directory import NodeDirectory
from halimede.hosting.substrates.spawn import Place, spawn
from halimede.hosting.substrates.usage.footprint import memory_of
from halimede.hosting.substrates.usage.meter import UsageMeter
from halimede.hosting.substrates.use import InstanceUse

_PATIENCE_S = 1.0
_LOG_INTERVAL_S = 0.25
"""Between two looks at whether the instance has printed something."""

_HOLD_S = 30.0
"""So long a question for events waits for one; an instance that does nothing costs no more than a question each."""

_LOG_BYTES = 1 << 18
"""Of one answer."""


class InstanceActor:
    """Owns one instance. Its methods are called through Ray, and run on the actor's event loop."""

    def __init__(self, settings: NodeSettings) -> None:
        """An actor that has started nothing."""
        self._settings = settings
        self._node = ray.get_runtime_context().get_node_id()
        self._address: str = ray.util.get_node_ip_address()
        self._state = ActorState()
        self._files: NodeDirectory | None = None
        self._store: NodeStore | None = None
        self._held: dict[str, HeldModel] = {}
        self._fetches: dict[str, threading.Event] = {}
        self._fetching: dict[str, asyncio.Future[int]] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watched: Watched | None = None
        self._usage = UsageMeter(self._instances)
        self._progress: Progress | None = None
        self._log: Path | None = None
        self._starting: asyncio.Future[RunningInstance] | None = None
        self._spawning = asyncio.Lock()
        self._clearing = asyncio.Lock()
        self._asked = False
        self._is_cleared = False
        self._released = 0  # so much of the log is elsewhere

    async def where(self) -> tuple[str, str]:
        """The node's id and its address."""
        return self._node, self._address

    async def state(self) -> ActorState:
        """What there is of the instance, which is not taken over once it was told to end, or has ended."""
        if self._asked:
            return replace(self._state, running=None)
        return replace(self._state, exit_code=await self._exit_code())

    async def _exit_code(self) -> int | None:
        """How the process has ended; None if it has not."""
        if self._process is None or self._watched is None or not self._watched.ended.is_set():
            return None
        return await asyncio.to_thread(self._process.wait)

    async def progress(self) -> Progress | None:
        """Of the latest archive, whose it is, how many bytes there are, and of how many; None if none was fetched."""
        return self._progress

    def _instances(self) -> Iterable[RunningInstance]:
        return () if self._state.running is None else (self._state.running,)

    # the process

    async def start(self, launch: Launch) -> RunningInstance:
        """Start the instance. If another engine has begun with that, wait until it is started.

        Raises:
            ApiError: an archive cannot be had, its directory cannot be made or its program cannot be started, or it
                was told to end meanwhile.
        """
        if self._starting is None:
            self._starting = tasks.submit(self._start(launch))
        return await asyncio.shield(self._starting)

    async def _start(self, launch: Launch) -> RunningInstance:
        self._state = ActorState(launch.request, launch.shape)
        try:
            models = {name: await self._model(name, launch) for name in launch.offers}
            await self._usage.start()
            async with self._spawning:
                self._check_wanted()
                process, running = await asyncio.to_thread(self._spawn, launch, models)
                self._state = ActorState(launch.request, launch.shape, running)
                self._process, self._watched = process, Watched(process.pid, lambda: None)
        except OSError as error:
            msg = f"an instance cannot be started on the node {self._address}: {error}"
            raise ApiError("InternalFailure", msg, 500) from None
        return running

    def _check_wanted(self) -> None:
        if self._asked:
            raise ApiError("InternalFailure", "the instance is being ended", 500)

    def _node_directory(self) -> NodeDirectory:
        if self._files is None:
            self._files = NodeDirectory(self._settings, self._node)
        return self._files

    async def _model(self, container: str, launch: Launch) -> Path:
        """The files of a container's archive.

        Raises:
            ApiError: they cannot be had.
        """
        try:
            return (
                await self._take(container, launch.offers[container], launch.timeout_s, told=True)
            ).directory
        except ApiError as error:
            raise error.of_container(container) if container else error from None

    def _spawn(
        self, launch: Launch, models: Mapping[str, Path]
    ) -> "tuple[subprocess.Popen[bytes], RunningInstance]":
        files = self._node_directory()
        request = launch.request.with_models(models)
        directory = files.instances / request.id
        self._log = directory / "log"
        # Ray lowers the priority of its workers, which a server must not have
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # of this thread, and so of what it starts
        self._keeper = start_keeper(directory)
        gpus = list(range(request.resources.gpus))
        port = files.free_port(self._address)
        place = Place(directory, self._log, self._address, port, gpus, files.isolates(), self._node)
        return spawn(request, place, launch.images, launch.variables)

    async def stop(self, grace_s: float, position: int) -> bytes:
        """End the instance and all that it started, and remove its files: the rest of its log, b"" the next time.

        Args:
            grace_s: how long it may take to end by itself; if this is called again, the shorter time counts.
            position: so much of the log is known.
        """
        self._asked = True
        for stop in self._fetches.values():
            stop.set()
        async with self._spawning:  # a process that is being started is one to end
            watched = self._watched
        if watched is not None:
            await watched.end(grace_s)
        async with self._clearing:
            if self._is_cleared:
                return b""
            rest = await asyncio.to_thread(self._clear, position)
            await self._usage.stop()
            self._is_cleared = True
            return rest

    def _clear(self, position: int) -> bytes:
        rest = b""
        if self._log is not None:
            end_marked(self._log.parent, _PATIENCE_S)
            rest = _read(self._log, position, 1 << 30)
            shutil.rmtree(self._log.parent, ignore_errors=True)
        if self._process is not None:
            self._process.wait()
        for held in self._held.values():
            held.release()
        self._held.clear()
        if self._keeper is not None and self._log is not None and not self._log.parent.exists():
            dismiss(self._keeper)
        if self._files is not None:
            self._files.leave()
        return rest

    async def events(self, position: int) -> Events:
        """What has happened, as soon as something has, or nothing after a while.

        Args:
            position: how much of the log is known.
        """
        loop = asyncio.get_running_loop()
        end, progress = loop.time() + _HOLD_S, self._progress
        while True:
            data = await asyncio.to_thread(self._printed, position) if self._has_printed(position) else b""
            if data or self._progress != progress:
                return Events(data, self._progress)
            if (exit_code := await self._exit_code()) is not None:
                return Events(b"", None, exit_code)
            if loop.time() >= end:
                return Events(b"", self._progress)
            await asyncio.sleep(_LOG_INTERVAL_S)

    def _has_printed(self, position: int) -> bool:
        """Whether there is something to read; asked for so often that a thread would cost more than the look."""
        try:
            return self._log is not None and self._log.stat().st_size > position
        except OSError:  # it is being made, or gone
            return False

    def _printed(self, position: int) -> bytes:
        assert self._log is not None
        if position > self._released:  # what is known elsewhere needs no room here
            with suppress(OSError), self._log.open("r+b") as file:
                punch(file.fileno(), position)
            self._released = position
        return _read(self._log, position, _LOG_BYTES)

    # archives

    async def _take(self, name: str, offer: Offer, timeout_s: float, *, told: bool = False) -> HeldModel:
        """Have the files of an archive on this node; `told` if its progress is told.

        Raises:
            ApiError: it cannot be had.
        """
        self._check_wanted()
        stop = self._fetches[name] = threading.Event()

        def progress(done: int, total: int) -> None:
            if told:
                self._progress = (name, done, total)

        try:
            held = await asyncio.to_thread(lambda: self._node_store().take(offer, timeout_s, progress, stop))
        finally:
            self._fetches.pop(name, None)
        if self._asked:
            held.release()
        self._check_wanted()
        self._held[name] = held
        return held

    def _node_store(self) -> NodeStore:
        if self._store is None:
            self._store = NodeStore(self._node_directory().store, self._settings.disk_bytes)
        return self._store

    async def fetch(self, name: str, offer: Offer, timeout_s: float) -> int:
        """Have the files of a model of many: the bytes that they take on disk.

        If another engine has begun with that, it is finished first.

        Raises:
            ApiError: they cannot be had.
        """
        while (earlier := self._fetching.get(name)) is not None:
            await asyncio.wait([earlier])
        fetching = self._fetching[name] = tasks.submit(self._fetch(name, offer, timeout_s))
        fetching.add_done_callback(lambda _: self._fetching.pop(name))
        return await asyncio.shield(fetching)

    async def _fetch(self, name: str, offer: Offer, timeout_s: float) -> int:
        earlier = self._held.pop(name, None)
        if earlier is not None:
            earlier.release()
        held = await self._take(name, offer, timeout_s)
        await self._on_files(lambda models: _show(models / name, held.directory))
        return held.disk_bytes

    async def remove(self, name: str) -> None:
        """Let go of the files of a model of many; the node may keep them for others."""
        await self._on_files(lambda models: shutil.rmtree(models / name, ignore_errors=True))
        held = self._held.pop(name, None)
        if held is not None:
            held.release()

    async def _on_files(self, work: Callable[[Path], None]) -> None:
        running = self._state.running
        if running is not None:
            try:
                await asyncio.to_thread(work, running.models)
            except OSError as error:
                raise ApiError("InsufficientStorage", f"a model cannot be written: {error}", 507) from None

    # measurements

    async def memory(self) -> int:
        """Bytes of memory that the instance's processes have for themselves."""
        running = self._state.running
        return 0 if running is None else await asyncio.to_thread(memory_of, running.pid)

    async def usage(self) -> InstanceUse | None:
        """What the instance has used since the last call; None the first time."""
        return next(iter((await self._usage.take()).values()), None)


def _show(directory: Path, model: Path) -> None:
    """Let an instance have the files of a model that the node's instances share: as links, which take no room."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(model, directory / "model", symlinks=True, copy_function=os.link)


def _read(log: Path, position: int, limit: int) -> bytes:
    try:
        with log.open("rb") as file:
            return os.pread(file.fileno(), limit, position)
    except OSError:
        return b""
