"""Which models there are, and their coming and going: start, load, unload, poll, stop.

Everything here runs on the event loop; looking at disks, loading and closing run in threads.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, suppress
from functools import partial

from halimede.backends.registry import PYTHON
from halimede.core import tasks
from halimede.core.background_threads import BackgroundThreads
from halimede.core.clock import SECOND, Clock
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from halimede.core.idle_cores import IdleCores
from halimede.engine.cache.opening import open_cache
from halimede.engine.calls.bls import ModelCalls
from halimede.engine.calls.custom_metrics import CustomMetrics
from halimede.engine.calls.loans import Loans
from halimede.engine.calls.model_control import ModelControl
from halimede.engine.calls.worker_services import WorkerServices
from halimede.engine.lifecycle.buckets import Buckets
from halimede.engine.lifecycle.catalog import Catalog
from halimede.engine.lifecycle.dependencies import is_spare, users_first
from halimede.engine.lifecycle.live_versions import LiveVersions, wait_until
from halimede.engine.lifecycle.load_slots import LoadSlots
from halimede.engine.lifecycle.model_loader import ModelLoader
from halimede.engine.lifecycle.model_table import AMBIGUOUS, Progress
from halimede.engine.lifecycle.on_demand_table import OnDemandNamespacedTable, table_for
from halimede.engine.lifecycle.operations import Operations
from halimede.engine.lifecycle.polling import Polling
from halimede.engine.lifecycle.version_states import IndexRow, ModelRecord
from halimede.engine.memory.demands import Demands
from halimede.engine.memory.ledger import Ledger
from halimede.engine.memory.model_memory import ModelMemory
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.served_model import ServedModel
from halimede.engine.settings import ControlMode, EngineSettings
from halimede.repository.layout import check_model_name, check_repositories
from halimede.repository.namespace import Namespace
from halimede.repository.overrides import LoadParameters, Override, OverrideFilesError, parse_parameters
from halimede.repository.snapshots import Snapshot
from halimede.workers.busy_wait import BusyWait
from halimede.workers.host import WorkerHost
from halimede.workers.python_settings import check_backend_settings, finalize_seconds

logger = logging.getLogger("halimede")


class Lifecycle:
    """The models of a server. Lives on the event loop.

    Attributes:
        live: the server has begun as it should, and is up, if only to stop.
        leaving: the server will stop soon, and is not ready any more, but answers requests.
        memory: what models take, and may take.
        cache: the response cache, None if there is none.
        busy_wait: whether the server and workers may wait for each other with the processor busy.
    """

    def __init__(self, settings: EngineSettings, clock: Clock, loop: AbstractEventLoop) -> None:
        self.live = True
        self.leaving = False
        self._settings = settings
        self._clock = clock
        self._loop = loop
        # A load may take minutes, so looking at the disk has threads of its own.
        self._disk = BackgroundThreads(2, "halimede-disk")
        on_demand = settings.control_mode is ControlMode.ON_DEMAND
        ledger = Ledger(settings.model_memory_budget)
        self._table = table_for(settings, ledger)
        self.memory = ModelMemory(
            ledger, self._table, clock, loop, self._disk, self._evict if on_demand else None
        )
        self._operations = Operations(
            self._table, self.memory.room, clock, loop, settings.ondemand_timeout_secs
        )
        self._demands = Demands(clock, loop, self.memory.room, self._load_demanded, self._look)
        self._live = LiveVersions(loop, self._disk, self.memory)
        control = ModelControl(self)
        limiter = loans = None
        if settings.rate_limit:
            limiter = RateLimiter(settings.rate_limit_resources, clock.call_soon)
            loans = Loans(limiter, self.find)
        calls = ModelCalls(self.find, clock.now, settings.gpus, self.name_in_server, control.demand, loans)
        self._services = WorkerServices(loop, calls, control)
        python = settings.backend_settings(PYTHON)
        check_backend_settings(python)
        self.busy_wait = BusyWait(settings.busy_wait_percent, settings.cpu_threads, IdleCores())
        self._workers = WorkerHost(loop, clock, self._services, finalize_seconds(python), self.busy_wait)
        self.cache = open_cache(settings.cache, clock, loop)
        repositories = settings.model_repositories
        self._buckets = Buckets(settings, self._table, clock, loop, on_return=self._load_missing)
        self._catalog = Catalog(repositories, self._table, loop, self._disk)
        self._loader = ModelLoader(
            settings,
            clock,
            loop,
            self._disk,
            self._table,
            self._live,
            self._buckets,
            self._workers,
            self.memory,
            self._load_needed,
            self.cache,
            limiter,
        )
        self._started = False
        self._starting = asyncio.Lock()
        self._polling = Polling(
            repositories, self._buckets, self._table, clock, loop, self._disk, self._attempt, self._withdraw
        )

    @property
    def custom_metrics(self) -> CustomMetrics:
        """What models count."""
        return self._services.metrics

    @property
    def load_slots(self) -> LoadSlots:
        """How many versions load at once."""
        return self._loader.slots

    # What there is

    def find(self, name: str, version: int = -1) -> ServedModel:
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

    async def model_ready(self, name: str, version: int = -1) -> bool:
        """Whether the version is READY, for -1 the highest that is, and its instances say so too.

        Raises:
            NotFoundError: there is no such model.
        """
        try:
            serving = self._table.serving(name)
        except InvalidArgumentError:  # several models have that name
            return False
        number = max(serving, default=-1) if version == -1 else version
        if number not in serving:
            return False
        ready, why_not = await serving[number].ready()
        if not ready:
            logger.warning("Model '%s' version %d is not ready: %s", name, number, why_not)
        return ready

    @property
    def ready(self) -> bool:
        """Whether the server has started and, with strict readiness, every model is ready."""
        if not self._started or self.leaving or self.stopping:
            return False
        settings = self._settings
        # what a client wants to be loaded, and cannot be, is no reason to send the others elsewhere
        strict = settings.strict_readiness and settings.control_mode is not ControlMode.ON_DEMAND
        return not strict or (
            self._buckets.known and all(record.ready for record in self._table.records.values())
        )

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

    def loaded_models(self) -> list[ServedModel]:
        """Every READY version, by name and version."""
        return self._table.loaded_models()

    def index(self, ready_only: bool = False) -> list[IndexRow]:
        """One row a version that has a state, and one for each model that was never loaded.

        Models on disk that the server has nothing to do with yet are listed as of the last `refresh`.
        """
        return self._table.index(ready_only)

    async def refresh(self) -> None:
        """Learn which models the repositories hold now, for `index`."""
        if not self.stopping:
            await self._buckets.update_names()
            await self._catalog.update()

    # Start, load, unload, stop

    async def start(self) -> bool:
        """Load what the control mode says, and begin to poll if it says so: True if all of it is READY.

        If a repository cannot be read, the server stays up, but is not live, and answers for no model.

        Raises:
            HalimedeError: a repository cannot be read, or `*` is not the only model to load.
        """
        settings = self._settings
        async with self._starting:
            if self.stopping:
                return False
            try:
                await self._loop.run_in_executor(self._disk, check_repositories, settings.model_repositories)
                await self._buckets.check(all_needed=settings.exit_on_error)
            except HalimedeError:
                self.live = False
                self._table.failed = True
                raise
            await self._catalog.update()
            results = await asyncio.gather(
                *(self._attempt(name, explicit=True) for name in self._names_to_start())
            )
        # a configuration that cannot be read is no model that readiness waits for
        self._started = all(results) or not settings.exit_on_error
        self._table.tell_readiness()
        if settings.control_mode is ControlMode.POLL and settings.repository_poll_secs > 0:
            self._polling.start(settings.repository_poll_secs)
        return all(results)

    async def _load_missing(self) -> None:
        """A bucket answers again: load what was to be loaded at start, and never was."""
        async with self._starting:
            if self.stopping:
                return
            await self._catalog.update()
            known = {name for name, record in self._table.records.items() if record.known}
            missing = [name for name in self._names_to_start() if name not in known]
            await asyncio.gather(*(self._attempt(name, explicit=True) for name in missing))

    def _names_to_start(self) -> list[str]:
        wanted = self._settings.load_models
        if not self._settings.control_mode.takes_requests or wanted == ("*",):
            return list(self._table.catalog)
        if "*" in wanted:
            raise InvalidArgumentError(
                "Wildcard model name '*' must be the ONLY startup model if specified at all."
            )
        return list(dict.fromkeys(each for name in wanted for each in self._table.names_to_load(name)))

    async def load(self, name: str, parameters: LoadParameters, *, waits_for_ends: bool = True) -> None:
        """Load the model or reload it, and return when that is done; nothing happens if nothing changed.

        The models that an ensemble needs are loaded, or reloaded, before it. Ensembles that wait for this model are
        loaded with it.

        Args:
            name: the model's name.
            parameters: ``config`` → a ModelConfig as JSON, and with it ``file:<path>`` → content.
            waits_for_ends: whether to return only when the versions and instances that it replaces are closed, but
                for those that are still in use. A model must not wait for its own end.

        Raises:
            UnavailableError: models come and go by themselves in this control mode, or the server is stopping.
            InvalidArgumentError: a parameter is wrong, or a version failed to load.
            InternalError: the model is not there, or its configuration or the files cannot be used.
            OutOfMemoryError: there is no memory for it, or no room in the budget.
        """
        self._require_explicit()
        if self._table.namespaces.find(name) is None:  # models of archives are called like their files
            check_model_name(name)
        try:
            override = parse_parameters(parameters)
        except OverrideFilesError as error:
            raise InternalError(
                f"failed to load '{name}', failed to poll from model repository: {error}"
            ) from error
        if not self._table.namespaced:
            await self._load_wanted(name, override, waits_for_ends)
            return
        await self.refresh()
        names = self._table.names_to_load(name)
        loads = (self._load_wanted(each, override, waits_for_ends) for each in names)
        for outcome in await asyncio.gather(*loads, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _load_wanted(self, name: str, override: Override, waits_for_ends: bool) -> None:
        async def load(record: ModelRecord) -> None:
            # in its turn, so that an unload that comes meanwhile comes after
            await self._buckets.ask_again(name)
            await self._load(record, override)

        with self._operations.wanted(name):
            await self._operations.load(name, load)
        if waits_for_ends:
            await self._loader.settled((name,))  # without its turn: it may take long

    async def unload(
        self, name: str, unload_dependents: bool = False, *, waits_for_ends: bool = True
    ) -> None:
        """Let no new requests reach the model, and return when it is gone; while it has requests in flight, at once.

        Unloading what is not loaded succeeds. Ensembles that need the model are unavailable until it is loaded again.

        Args:
            name: the model's name.
            unload_dependents: if it is an ensemble, unload the models that were loaded only because it needs them,
                and that no other ensemble needs.
            waits_for_ends: as for `load`.

        Raises:
            UnavailableError: models come and go by themselves in this control mode, or the server is stopping.
        """
        self._require_explicit()
        unloaded = self._table.meant(name)
        left = []
        for each in unloaded:
            left += await self._unload(each)
        while unload_dependents and left:
            need = left.pop()
            if need in self._table.records:
                left += await self._unload(need, only_spare=True)
                unloaded.append(need)
        if waits_for_ends:
            await self._loader.settled(unloaded)

    # Models that are loaded when they are asked for

    async def demand(
        self, name: str, version: int = -1, timeout_s: float | None = None, caller: str = ""
    ) -> ServedModel:
        """Have a model loaded that `find` said is not loaded; the highest ready version for -1.

        However many wait for a model, it is loaded once. It stays until each has had its turn: what the caller does
        with it before another await is done before it may be evicted.

        Args:
            name: the model.
            version: the version.
            timeout_s: how long to wait, None for as long as the settings say; the load goes on.
            caller: the model whose request waits, if it is one's.

        Raises:
            UnavailableError: it takes longer, or the server is stopping.
            OutOfMemoryError: there is no memory for it.
            NotFoundError: there is no such model or version.
            HalimedeError: the model cannot be loaded.
        """
        timeout = self._settings.ondemand_timeout_secs if timeout_s is None else timeout_s
        if isinstance(self._table, OnDemandNamespacedTable):
            name = await self._table.identify(name, self._look)
        await self._demands.wait(name, timeout, caller)
        return self.find(name, version)

    def hold(self, name: str) -> Callable[[], None]:
        """Let the model not be evicted until the returned function is called."""
        return self.memory.room.hold(name)

    async def _look(self, name: str) -> Snapshot:
        if self.stopping:
            raise UnavailableError("Server is stopping, models are no longer loaded")
        try:
            return await self._loader.look(name)
        except OSError as error:
            raise InternalError(f"cannot look for model '{name}': {error}") from error

    async def _load_demanded(self, name: str) -> None:
        """Load a model that requests wait for."""

        async def load(record: ModelRecord) -> None:
            if record.models:
                return
            if not (await self._look(name)).directories:
                raise NotFoundError(f"Request for unknown model: '{name}' is not found")
            await self._loader.load(record, Override())
            record.explicit = True

        def done() -> bool:
            return name in self._table.records and bool(self._table.records[name].models)

        await self._operations.load(name, load, done)

    async def _evict(self, name: str) -> None:
        """Unload a model that nothing needs now, with those that only it needed: when all is given back."""
        evicted: list[str] = []
        left = [name]
        while left:
            record = self._table.records.get(left.pop())
            if record is None or not self.memory.room.idle(record):
                continue
            if evicted and not is_spare(record, self._table.records):
                continue
            evicted.append(record.name)
            left += record.needs
            self._loader.unload(record)
            record.explicit = False
        logger.info("evicting '%s' to make room", "', '".join(evicted))
        await self._live.closed(evicted)

    # Models outside the repositories

    def name_in_server(self, name: str, seen_from: str) -> str:
        """The name in the server of the model that another one calls `name`."""
        return self._table.name_in_server(name, seen_from)

    async def adopt(self, namespace: Namespace, needed: Container[str]) -> None:
        """Load the models of an archive, and know them from then on.

        Args:
            namespace: the archive.
            needed: names in the server of those that the entry is an ensemble of, which are loaded with it.

        Raises:
            AlreadyExistsError: a model's name in the server is taken.
            HalimedeError: one cannot be loaded; none is, and nothing is left of them.
        """
        self._require_explicit()
        self._table.namespaces.add(namespace, taken=self._table.records.keys() | self._table.catalog.keys())
        try:
            # those that a model calls have to be there when it is loaded
            called = [
                name for name in namespace.directories if name != namespace.entry and name not in needed
            ]
            for outcome in await asyncio.gather(
                *(self.load(name, {}) for name in called), return_exceptions=True
            ):
                if isinstance(outcome, BaseException):
                    raise outcome
            await self.load(namespace.entry, {})
        except BaseException:
            await self.dismiss(namespace)
            raise

    async def dismiss(self, namespace: Namespace) -> None:
        """Unload the models of an archive, and know them no more: when all that they held is given back."""

        async def unload(record: ModelRecord) -> None:
            self._loader.unload(record)

        names = [namespace.entry, *(name for name in namespace.directories if name != namespace.entry)]
        for name in names:
            with suppress(UnavailableError):  # the server is stopping, which unloads them
                await self._operations.take_turn(name, unload)
        await self._live.closed(names)
        self._table.namespaces.remove(namespace)
        for name in names:
            record = self._table.records.get(name)
            if record is not None:
                record.versions.clear()
                record.reason = ""
                if not record.operations:
                    del self._table.records[name]
        self._table.tell_readiness()

    def waiting(self, model: str, target: str) -> AbstractContextManager[None]:
        """See `Operations.waiting`."""
        return self._operations.waiting(model, target)

    def leave(self) -> None:
        """Be ready no more, but answer requests until `stop`."""
        self.leaving = True
        self._table.tell_readiness()

    async def stop(self, timeout_s: float) -> bool:
        """Refuse new requests, answer those in flight, unload everything: whether that was done in time."""
        self._table.stopping = True
        self._table.tell_readiness()
        deadline = self._clock.now() + round(timeout_s * SECOND)
        self._polling.stop()
        self._buckets.stop()
        for model in self._live.stop():
            self._table.hide(model)
        await self.memory.stop()
        logger.info("Waiting for in-flight requests to complete.")
        drained = tasks.submit(self._live.drained())
        if not await wait_until(deadline, drained, self._clock, self._live.report_inflight):
            return False
        unloaded = tasks.submit(self._unload_all())

        def report(seconds: int) -> None:
            self._live.report_live(seconds, len(self._operations.under_way))

        if not await wait_until(deadline, unloaded, self._clock, report):
            return False
        self._loader.close()
        if self.cache is not None:
            await self.cache.close()
        await self._loop.run_in_executor(None, self._workers.close)
        await self._buckets.close()
        self._disk.shutdown()
        self.live = False
        return True

    async def _unload_all(self) -> None:
        # Loads drop what they have loaded when they find that the server is stopping.
        async with self._starting:
            await self._operations.under_way.wait()
            await self._polling.under_way.wait()
        for record in users_first(self._table.records):
            self._loader.unload(record)
        await self._live.closed()

    def check(self) -> None:
        """Refuse to answer for models if the server could not start.

        Raises:
            UnavailableError: it could not.
        """
        self._table.check()

    def _require_explicit(self) -> None:
        self.check()
        if not self._settings.control_mode.takes_requests:
            raise UnavailableError("explicit model load / unload is not allowed if polling is enabled")

    # Operations on one model

    async def _load(
        self, record: ModelRecord, override: Override, expected: Snapshot | None = None, explicit: bool = True
    ) -> None:
        await self._loader.load(record, override, expected)
        record.explicit = record.explicit or explicit

    async def _load_needed(self, name: str) -> HalimedeError | None:
        """See to a model that an ensemble needs, which is being loaded. If that fails, the model's record says why."""

        async def load(record: ModelRecord) -> None:
            # what a client brought is not undone for an ensemble
            if not (record.models and record.snapshot is None):
                await self._loader.load(record, Override())

        if self._settings.control_mode.takes_requests:
            try:
                await self._operations.take_turn(name, load)
            except HalimedeError as error:
                return error
        elif (record := self._table.records.get(name)) is not None and record.operations:
            async with record.turn:  # what it waits for is over
                pass
        return None

    async def _unload(self, name: str, only_spare: bool = False) -> list[str]:
        """Unload a model, if so asked only if nothing needs it any more: the models that it needed itself."""
        needed: list[str] = []

        async def unload(record: ModelRecord) -> None:
            if not only_spare or is_spare(record, self._table.records):
                needed.extend(record.needs)
                self._loader.unload(record)
                record.explicit = False

        await self._operations.take_turn(name, unload)
        return needed

    async def _attempt(self, name: str, expected: Snapshot | None = None, explicit: bool = False) -> bool:
        """Load a model that no client asked for now: whether that worked. If not, the log and the index say why."""
        try:
            load = partial(self._load, override=Override(), expected=expected, explicit=explicit)
            with self._operations.wanted(name):
                await self._operations.load(name, load)
        except HalimedeError:
            return False
        return True

    # Polling

    async def poll(self) -> None:
        """Look at the repositories, and act on what changed and is as it was at the look before."""
        await self._polling.look()

    async def _withdraw(self, name: str, snapshot: Snapshot) -> None:
        """Unload a model whose directory is gone, or is no longer the only one of that name."""
        with suppress(UnavailableError):  # the server is stopping
            await self._operations.take_turn(name, partial(self._withdraw_record, snapshot=snapshot))

    async def _withdraw_record(self, record: ModelRecord, snapshot: Snapshot) -> None:
        self._loader.unload(record)
        if snapshot.directories:
            logger.error("Poll failed for model directory '%s': %s", record.name, AMBIGUOUS)
            record.reason = AMBIGUOUS
            record.refused = True
        record.snapshot = snapshot
