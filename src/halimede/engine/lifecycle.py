"""Which models there are, and their coming and going: start, load, unload, poll, stop.

Everything here runs on the event loop; looking at disks, loading and closing run in threads. Operations on one model
take turns in order of arrival, operations on different models run side by side.

In poll mode a change is acted on when two looks in a row have seen the same, so that a copy that is still being
written is left alone.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from halimede.core.clock import SECOND, Clock, Timer
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnavailableError
from halimede.engine.live_versions import LiveVersions, wait_until
from halimede.engine.model import Model
from halimede.engine.model_loader import ModelLoader
from halimede.engine.model_table import AMBIGUOUS, ModelTable, Progress
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.engine.version_states import IndexRow, ModelRecord
from halimede.repository.layout import check_model_name, check_repositories, find_models
from halimede.repository.overrides import Override, parse_parameters
from halimede.repository.sightings import ABSENT, Sighting, sight_models

logger = logging.getLogger("halimede")

Work = Callable[[ModelRecord], Coroutine[Any, Any, None]]


class Lifecycle:
    """The models of a server. Lives on the event loop.

    Attributes:
        live: the server is up, if only to stop.
    """

    def __init__(self, settings: EngineSettings, clock: Clock, loop: AbstractEventLoop) -> None:
        self.live = True
        self._settings = settings
        self._clock = clock
        self._loop = loop
        # A load may take minutes, so looking at the disk has threads of its own.
        self._disk = ThreadPoolExecutor(2, "halimede-disk")
        self._table = ModelTable()
        self._live = LiveVersions(loop, self._disk)
        self._loader = ModelLoader(settings, clock, loop, self._disk, self._table, self._live)
        self._started = False
        self._starting = asyncio.Lock()
        self._operations: set[asyncio.Task[None]] = set()
        self._last_look: dict[str, Sighting] | None = None
        self._looking = False
        self._polls: set[asyncio.Task[None]] = set()
        self._poll_timer: Timer | None = None

    # What there is

    def find(self, name: str, version: int = -1) -> Model:
        """The loaded model of that name; the highest ready version for -1.

        Raises:
            NotFoundError: no such model or version, or none of its versions is ready.
            UnavailableError: that version is not ready, or the server is stopping.
        """
        return self._table.find(name, version)

    def versions(self, name: str) -> list[int]:
        """The READY versions of a model, ascending.

        Raises:
            NotFoundError: there is no such model.
        """
        return list(self._table.serving(name))

    def model_ready(self, name: str, version: int = -1) -> bool:
        """Whether the version is READY; for -1, whether any is.

        Raises:
            NotFoundError: there is no such model.
        """
        ready = self._table.serving(name)
        return bool(ready) if version == -1 else version in ready

    @property
    def ready(self) -> bool:
        """Whether the server has started and, with strict readiness, every model is ready."""
        if not self._started or self.stopping:
            return False
        strict = self._settings.strict_readiness
        return not strict or all(record.ready for record in self._table.records.values())

    @property
    def stopping(self) -> bool:
        """Whether the server is shutting down, or has."""
        return self._table.stopping

    @property
    def on_progress(self) -> list[Progress]:
        """Callbacks for each change of a version's state; add yours."""
        return self._table.on_progress

    @property
    def on_readiness(self) -> list[Callable[[], None]]:
        """Callbacks for when `ready` may have changed; add yours."""
        return self._table.on_readiness

    def loaded_models(self) -> list[Model]:
        """Every READY version, by name and version."""
        return self._table.loaded_models()

    def index(self, ready_only: bool = False) -> list[IndexRow]:
        """One row a version that has a state, and one for each model that was never loaded.

        Models on disk that the server has nothing to do with yet are listed as of the last `refresh`.
        """
        return self._table.index(ready_only)

    async def refresh(self) -> None:
        """Learn which models the repositories hold now, for `index`."""
        if self.stopping:
            return
        try:
            found = await self._loop.run_in_executor(
                self._disk, find_models, self._settings.model_repositories
            )
        except OSError as error:
            logger.error("cannot look for models: %s", error)
            return
        self._table.catalog = {name: len(directories) > 1 for name, directories in found.items()}

    # Start, load, unload, stop

    async def start(self) -> bool:
        """Load what the control mode says, and begin to poll if it says so: True if all of it is READY.

        Raises:
            InvalidArgumentError: a repository cannot be read, or `*` is not the only model to load.
        """
        settings = self._settings
        async with self._starting:
            if self.stopping:
                return False
            await self._loop.run_in_executor(self._disk, check_repositories, settings.model_repositories)
            await self.refresh()
            results = await asyncio.gather(*(self._attempt(name) for name in self._names_to_start()))
        self._started = True
        self._table.tell_readiness()
        if settings.control_mode is ControlMode.POLL and settings.repository_poll_secs > 0:
            self._schedule_poll()
        return all(results)

    def _names_to_start(self) -> list[str]:
        wanted = self._settings.load_models
        if self._settings.control_mode is not ControlMode.EXPLICIT or wanted == ("*",):
            return list(self._table.catalog)
        if "*" in wanted:
            raise InvalidArgumentError(
                "Wildcard model name '*' must be the ONLY startup model if specified at all."
            )
        return list(dict.fromkeys(wanted))

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Load the model or reload it, and return when that is done; nothing happens if nothing changed.

        Args:
            name: the model's name.
            parameters: ``config`` → a ModelConfig as JSON, and with it ``file:<path>`` → content.

        Raises:
            UnavailableError: the control mode is not explicit, or the server is stopping.
            InvalidArgumentError: the name or a parameter is wrong, or a version failed to load.
            InternalError: the model is not there, or its configuration cannot be used.
        """
        self._require_explicit()
        check_model_name(name)
        override = parse_parameters(parameters)
        await self._take_turn(name, lambda record: self._loader.load(record, override))

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Let no new requests reach the model, and return; it is gone once those in flight are answered.

        Unloading what is not loaded succeeds. `unload_dependents` is about models that an ensemble brought with
        it; as there are no ensembles yet, it changes nothing.

        Raises:
            UnavailableError: the control mode is not explicit, or the server is stopping.
        """
        self._require_explicit()
        if name in self._table.records:
            await self._take_turn(name, self._unload)

    async def stop(self, timeout_s: float) -> bool:
        """Refuse new requests, answer those in flight, unload everything: whether that was done in time."""
        self._table.stopping = True
        self._table.tell_readiness()
        deadline = self._clock.now() + round(timeout_s * SECOND)
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._live.stop()
        logger.info("Waiting for in-flight requests to complete.")
        drained = self._loop.create_task(self._live.drained())
        if not await wait_until(deadline, drained, self._clock, self._live.report_inflight):
            return False
        unloaded = self._loop.create_task(self._unload_all())

        def report(seconds: int) -> None:
            self._live.report_live(seconds, len(self._operations))

        if not await wait_until(deadline, unloaded, self._clock, report):
            return False
        self._loader.close()
        self._disk.shutdown()
        self.live = False
        return True

    async def _unload_all(self) -> None:
        # Loads drop what they have loaded when they find that the server is stopping.
        async with self._starting:
            if under_way := self._operations | self._polls:
                await asyncio.wait(under_way)
        for record in self._table.records.values():
            self._loader.unload(record)
        await self._live.closed()

    def _require_explicit(self) -> None:
        if self._settings.control_mode is not ControlMode.EXPLICIT:
            raise UnavailableError("explicit model load / unload is not allowed if polling is enabled")

    # Operations on one model

    async def _take_turn(self, name: str, work: Work) -> None:
        """Do the work once all that came before it on the same model is done.

        It goes on if the caller gives up, as the handler of a client that closes its connection may.
        """
        record = self._table.records.setdefault(name, ModelRecord(name))
        record.operations += 1
        task = self._loop.create_task(self._work(record, work))
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        await asyncio.shield(task)

    async def _work(self, record: ModelRecord, work: Work) -> None:
        try:
            async with record.turn:
                if self.stopping:
                    raise UnavailableError("Server is stopping, models are no longer loaded or unloaded")
                await work(record)
        finally:
            record.operations -= 1
            if not record.operations and not record.known:
                del self._table.records[record.name]

    async def _unload(self, record: ModelRecord) -> None:
        self._loader.unload(record)

    async def _attempt(self, name: str, expected: Sighting | None = None) -> bool:
        """Load a model that no client waits for: whether that worked. If not, the log and the index say why."""
        try:
            check_model_name(name)
        except InvalidArgumentError as error:
            logger.error("failed to load '%s': %s", name, error)
            return False
        try:
            await self._take_turn(name, lambda record: self._loader.load(record, Override(), expected))
        except HalimedeError:
            return False
        return True

    # Polling

    def _schedule_poll(self) -> None:
        period = self._settings.repository_poll_secs * SECOND
        self._poll_timer = self._clock.call_at(self._clock.now() + period, self._poll_now)

    def _poll_now(self) -> None:
        if self.stopping:
            return
        if not self._looking:
            task = self._loop.create_task(self.poll())
            self._polls.add(task)
            task.add_done_callback(self._polls.discard)
        self._schedule_poll()

    async def poll(self) -> None:
        """Look at the repositories, and act on what changed and is as it was at the look before.

        Another look may begin while this one's loads are under way; it leaves their models alone.
        """
        self._looking = True
        try:
            seen = await self._loop.run_in_executor(
                self._disk, sight_models, self._settings.model_repositories
            )
        except OSError as error:
            logger.error("Poll failed: %s", error)
            return
        finally:
            self._looking = False
        before, self._last_look = self._last_look, seen
        self._table.catalog = {name: len(sighting.directories) > 1 for name, sighting in seen.items()}
        if before is None or self.stopping:
            return
        actions: list[Coroutine[Any, Any, object]] = []
        for name in sorted(seen.keys() | self._table.records.keys()):
            record = self._table.records.get(name)
            sighting = seen.get(name, ABSENT)
            known = ABSENT if record is None else record.sighting
            settled = sighting == before.get(name, ABSENT)
            if sighting == known or not settled or (record is not None and record.operations):
                continue
            if len(sighting.directories) == 1:
                actions.append(self._attempt(name, sighting))
            else:
                actions.append(self._withdraw(name, sighting))
        await asyncio.gather(*actions)

    async def _withdraw(self, name: str, sighting: Sighting) -> None:
        """Unload a model whose directory is gone, or is no longer the only one of that name."""
        with suppress(UnavailableError):  # the server is stopping
            await self._take_turn(name, partial(self._withdraw_record, sighting=sighting))

    async def _withdraw_record(self, record: ModelRecord, sighting: Sighting) -> None:
        if sighting.directories:
            logger.error("Poll failed for model directory '%s': %s", record.name, AMBIGUOUS)
            self._loader.unload(record, AMBIGUOUS)
            record.reason = AMBIGUOUS
        else:
            self._loader.unload(record)
        record.sighting = sighting
