"""Loading, reloading and unloading one model: from what lies on disk to versions that serve.

A reload swaps in its versions when all of them have loaded; what they replace serves until then, and finishes its
requests afterwards. Versions that would be loaded again as they are stay. If one version fails, those that loaded
with it are dropped again, and what served before goes on.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from halimede.backends.base import ModelSource
from halimede.config.ensembles import is_ensemble
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import hint_without_version
from halimede.core.background_threads import BackgroundThreads
from halimede.core.clock import Clock
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnavailableError,
)
from halimede.core.out_of_memory import lacks_memory
from halimede.engine.cache.access import cache_access
from halimede.engine.cache.store import Cache
from halimede.engine.lifecycle.agents import AgentChain, RepositoryAgents
from halimede.engine.lifecycle.buckets import Buckets
from halimede.engine.lifecycle.cached_content import content_of
from halimede.engine.lifecycle.ensemble_loader import EnsembleLoader, LoadNeeded
from halimede.engine.lifecycle.instance_updates import can_change, make_instances
from halimede.engine.lifecycle.live_versions import LiveVersions
from halimede.engine.lifecycle.load_slots import LoadSlots
from halimede.engine.lifecycle.loading import load_version
from halimede.engine.lifecycle.model_table import AMBIGUOUS, ModelTable
from halimede.engine.lifecycle.version_states import (
    UNLOADED,
    ModelRecord,
    OverrideFiles,
    Serving,
    Version,
    VersionState,
)
from halimede.engine.lifecycle.version_swaps import VersionSwaps
from halimede.engine.loaded_version import LoadedVersion
from halimede.engine.memory.ledger import Holding
from halimede.engine.memory.model_memory import ModelMemory
from halimede.engine.model import Model
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.settings import EngineSettings
from halimede.engine.summaries import LatencySummaries
from halimede.repository.basis import Basis
from halimede.repository.fingerprint import Fingerprint
from halimede.repository.layout import is_directory_name
from halimede.repository.namespaced_steps import bind_steps
from halimede.repository.overrides import Override, write_files
from halimede.repository.resolve import ResolvedModel, resolve
from halimede.repository.snapshots import Snapshot, sight_directory, sight_model
from halimede.workers.host import WorkerHost

logger = logging.getLogger("halimede")

T = TypeVar("T")

_MAX_THREADS = 1024


class ModelLoader:
    """Loads and unloads models; for one model, one thing at a time. Lives on the event loop.

    Attributes:
        slots: how many versions load at once.
    """

    def __init__(
        self,
        settings: EngineSettings,
        clock: Clock,
        loop: AbstractEventLoop,
        disk: ThreadPoolExecutor,
        table: ModelTable,
        live: LiveVersions,
        buckets: Buckets,
        workers: WorkerHost,
        memory: ModelMemory,
        load_needed: LoadNeeded,
        cache: Cache | None,
        limiter: RateLimiter | None,
    ) -> None:
        """A loader that reads directories on `disk` and loads on threads of its own.

        Before an ensemble is loaded, `load_needed` sees to each of the models that it needs. Responses are kept in
        `cache`, those of models that want it. `limiter` says when instances may run batches; without one, they always
        may.
        """
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._disk = disk
        self.slots = LoadSlots(settings.load_threads)
        # The slots say how many load; loads that wait for others of theirs have threads beyond that.
        self._loaders = BackgroundThreads(_MAX_THREADS, "halimede-load")
        self._table = table
        self._live = live
        self._buckets = buckets
        self._workers = workers
        self._memory = memory
        self._limiter = limiter
        self._swaps = VersionSwaps(table, live)
        self._ensembles = EnsembleLoader(
            clock, loop, disk, table, self._swaps, load_needed, cache, summaries=settings.summary_latencies
        )
        self._cache = cache
        self._agents = RepositoryAgents(settings, loop, disk)

    def close(self) -> None:
        """End the threads, when no load is under way any more."""
        self._loaders.shutdown()
        self._agents.close()

    def unload(self, record: ModelRecord) -> None:
        """Let no new request reach the model; it is gone once those in flight are answered."""
        if record.snapshot is not None:
            self._buckets.mark_used(record.snapshot.directories)
        record.intact = False
        record.snapshot = None
        record.overridden = None
        record.reason = ""
        record.lacks_versions = False
        record.blueprint = None
        self._swaps.withdraw(record)
        self._change_agents(record, None)

    async def load(self, record: ModelRecord, override: Override, expected: Snapshot | None = None) -> None:
        """Load the model as it is on disk now, or as overridden; nothing happens if nothing changed.

        Args:
            record: the model.
            override: what a client brings instead.
            expected: if given, nothing happens either unless the model still is as it was seen then.

        Raises:
            InternalError: the model is not there, or its configuration cannot be used.
            InvalidArgumentError: a version failed to load.
            OutOfMemoryError: it failed for want of memory, or of room in the budget.
            UnavailableError: the server is stopping.
        """
        files: OverrideFiles | None = None
        agents: AgentChain | None = None
        snapshot = Snapshot()
        try:
            snapshot = await self.look(record.name)
            if expected not in (None, snapshot):
                return
            unchanged = record.intact and snapshot in (record.snapshot, record.overridden)
            if unchanged and not (override.given or record.dormant):
                await self._ensembles.load_needed(record.needs)
                return
            if not await self._buckets.fetch(record.name, snapshot.directories, override):
                snapshot = Snapshot(snapshot.directories)  # the next look sees that it is not what is there
            record.intact = False
            record.snapshot = None if override.given else snapshot
            # Another configuration stays until the directory changes, unless the model was first loaded with it.
            stays = override.given and not override.files and record.versions
            record.overridden = snapshot if stays else None
            if override.files and is_directory_name(self._table.own_name(record.name)):
                directory = await self._loop.run_in_executor(self._disk, write_files, override.files)
                files = OverrideFiles(directory, users=1)
            directory = _directory(record.name, snapshot, files)
            agents = await self._agents.load(record.name, directory, override.config)
            if agents is not None:
                directory = agents.location
            resolved = await self._resolve(record.name, directory, override)
        except Exception as error:
            if not isinstance(error, HalimedeError | OSError):
                logger.exception("failed to poll '%s'", record.name)
            if agents is not None:
                await agents.fail()
            if files is not None:
                await self._live.release(files)
            refusal = self._refused(record, snapshot, str(error))
            raise (OutOfMemoryError(refusal.message) if lacks_memory(error) else refusal) from error
        try:
            await self._load_versions(record, resolved, snapshot, files, agents)
        except BaseException:
            if agents is not None:
                await agents.fail()
            raise
        finally:
            if files is not None:
                await self._live.release(files)
        record.intact = True
        self._change_agents(record, agents)
        if agents is not None:
            await agents.complete()

    def _change_agents(self, record: ModelRecord, agents: AgentChain | None) -> None:
        """Have the agents that a model had unload it; from now on it has these."""
        if record.agents is not None:
            self._live.end_agents(record.agents)
        record.agents = agents

    async def look(self, name: str) -> Snapshot:
        """What there is of a model in the repositories.

        Raises:
            OSError: a repository cannot be read.
            BucketError: a bucket cannot be listed.
        """
        if self._table.namespaces.directory(name) is None:
            await self._buckets.update(name)
        return await self._loop.run_in_executor(self._disk, self._look_for(name))

    def _look_for(self, name: str) -> Callable[[], Snapshot]:
        """What tells what there is of a model on disk."""
        directory = self._table.namespaces.directory(name)
        if directory is not None:
            return partial(sight_directory, directory)
        repositories = self._settings.model_repositories
        return partial(sight_model, repositories, name, namespaced=self._table.namespaced)

    async def _resolve(self, name: str, directory: Path, override: Override) -> ResolvedModel:
        settings = self._settings
        work = partial(
            resolve,
            self._table.own_name(name),
            directory,
            config_name=settings.model_config_name,
            config_override=override.config,
            auto_complete=settings.auto_complete_config,
            gpus=settings.gpus,
            cpu_fallback=settings.cpu_fallback,
            namespace=self._table.namespaces.find(name),
        )
        resolved = await self._loop.run_in_executor(self._disk, work)
        if namespace := self._table.namespace(name):
            bind = partial(bind_steps, resolved.config, Path(namespace), settings.model_repositories)
            await self._loop.run_in_executor(self._disk, bind)
        return resolved

    def _refused(self, record: ModelRecord, snapshot: Snapshot, why: str) -> InternalError:
        """There is nothing to load, or it makes no sense: note why; what serves goes on."""
        if snapshot.directories:
            logger.error("Poll failed for model directory '%s': %s", record.name, why)
        else:
            logger.error("failed to poll model '%s': %s", record.name, why)
        logger.info("failed to load '%s'", record.name)
        record.reason = why if snapshot.directories else ""
        record.refused = True
        record.lacks_versions = False
        record.forget_failed()
        self._table.tell(record.name, None, VersionState.UNAVAILABLE, why)
        name = self._table.own_name(record.name)
        return InternalError(f"failed to load '{name}', failed to poll from model repository: {why}")

    async def _load_versions(
        self,
        record: ModelRecord,
        resolved: ResolvedModel,
        snapshot: Snapshot,
        files: OverrideFiles | None,
        agents: AgentChain | None,
    ) -> None:
        """Load the versions that changed, swap them in, and unload those that are no longer selected.

        What agents had a hand in may always have changed.
        """
        record.reason = ""
        record.refused = False
        record.selects_none = record.lacks_versions = not resolved.versions
        record.forget_failed(resolved.versions)
        if record.selects_none:
            raise self._without_versions(record, resolved)
        known = None if files is not None or agents is not None else snapshot.contents
        bases = _bases(resolved, known)
        if is_ensemble(resolved.config):
            await self._ensembles.load(record, resolved, bases)
            logger.info("successfully loaded '%s'", record.name)
            return
        changed = {
            number: bases[number] for number in resolved.versions if not _stays(record, number, bases[number])
        }
        await self._change_instances(record, resolved, changed)
        async with self._memory.reserved(
            record.name, resolved.directory, resolved.config, changed
        ) as holdings:
            models = await self._load_changed(record, resolved, bases, holdings)
        servings = {
            number: Serving(model, bases[number], files, holding=holdings[number], agents=agents)
            for number, model in models.items()
        }
        record.blueprint = None
        self._swaps.swap(record, resolved.config, resolved.versions, servings)
        logger.info("successfully loaded '%s'", record.name)

    def _without_versions(self, record: ModelRecord, resolved: ResolvedModel) -> InvalidArgumentError:
        """There is no version to load; what serves goes on."""
        misplaced = hint_without_version(resolved.directory)
        record.reason = (
            f"at least one version must be available under the version policy of model '{record.name}'"
            f"{misplaced}"
        )
        logger.error("failed to load '%s': %s", record.name, record.reason)
        self._table.tell(record.name, None, VersionState.UNAVAILABLE, record.reason)
        return InvalidArgumentError(f"load failed for model '{record.name}': {record.reason}\n")

    async def _change_instances(
        self, record: ModelRecord, resolved: ResolvedModel, changed: dict[int, Basis | None]
    ) -> None:
        """Where nothing but its instances has changed, let a version that serves go on with others.

        Args:
            record: the model.
            resolved: what its directory says.
            changed: the versions that have changed, each with what it stands on; those that need no more are taken
                out.

        Raises:
            InvalidArgumentError: instances could not be made; the versions that were there go on with those they had.
        """
        failures = {}
        for number, basis in list(changed.items()):
            version = record.versions.get(number)
            serving = version.serving if version is not None else None
            if version is None or serving is None or not isinstance(serving.model, Model) or basis is None:
                continue
            model = serving.model
            if not basis.differs_in_instances(serving.basis):
                continue
            if not can_change(model.config, resolved.config, self._settings.gpus):
                continue
            logger.info("loading: %s:%d", record.name, number)
            try:
                await self._change_instances_of(serving, model, resolved.config)
            except HalimedeError as error:
                version.reason = f"{error.code.words}: {error}"
                failures[number] = error
            else:
                version.reason = ""
                serving.basis = basis
                logger.info("changed the instances of '%s' version %d", record.name, number)
            del changed[number]
        if failures:
            raise self._failed(record, [], failures)

    async def settled(self, names: Collection[str]) -> None:
        """Return when the versions and instances that loads and unloads took away from these models are closed.

        Those that have sequences, and versions that have requests in flight, are not waited for.
        """
        records = [self._table.records[name] for name in names if name in self._table.records]
        models = [model for record in records for model in record.models.values()]
        await asyncio.gather(*(model.instances_ended() for model in models if isinstance(model, Model)))
        await self._live.settled(names)

    async def _change_instances_of(self, serving: Serving, model: Model, config: ModelConfig) -> None:
        """Let a version go on with the instances that the configuration asks for."""
        assert serving.holding is not None, "only ensembles have none"
        before = len(model.loaded.instances)
        after = sum(group.count * (len(group.gpus) or 1) for group in config.instance_group)
        if self._limiter is not None:
            for group in config.instance_group:
                for device in group.gpus or (0,):
                    self._limiter.check(group.rate_limiter, device)
        long = _LongWarmUp(self._loop)
        work = partial(make_instances, model.loaded, config, self._settings, long.tell)
        async with self._memory.resized(serving.holding, before, after), self.slots:
            made = self._loop.run_in_executor(self._loaders, work)
            model.change_instances(await long.wait_for(made, self.slots))

    async def _load_changed(
        self,
        record: ModelRecord,
        resolved: ResolvedModel,
        bases: Mapping[int, Basis | None],
        holdings: Mapping[int, Holding],
    ) -> dict[int, Model]:
        """The versions that the holdings are for, ready to serve."""
        changed = list(holdings)
        record.loading = True
        self._table.tell_readiness()
        try:
            loaded, failures = await self._load_each(record, resolved, holdings)
            if not failures:
                try:
                    await self._memory.settle(holdings, loaded)
                except HalimedeError as error:
                    failures = dict.fromkeys(changed, error)
        finally:
            record.loading = False
        models = {}
        for number, version in loaded.items():
            try:
                cache = cache_access(self._cache, version.source.config, number, content_of(bases[number]))
                models[number] = Model(
                    version, self._clock, self._loop, self._table.tell_readiness, cache, self._limiter
                )
            except HalimedeError as error:
                failures[number] = error
        if failures or self._table.stopping:
            for model in models.values():
                model.leave_limiter()
            for version in loaded.values():
                await self._loop.run_in_executor(self._loaders, version.close)
            raise self._failed(record, changed, failures)
        return models

    async def _load_each(
        self, record: ModelRecord, resolved: ResolvedModel, holdings: Mapping[int, Holding]
    ) -> tuple[dict[int, LoadedVersion], dict[int, HalimedeError]]:
        """Load versions side by side: those that loaded, and why the others failed."""
        attempts = []
        for number, holding in holdings.items():
            version = record.versions.setdefault(number, Version(number))
            if version.state is not VersionState.READY:
                self._table.move(record, version, VersionState.LOADING)
            logger.info("loading: %s:%d", record.name, number)
            source = ModelSource(record.name, number, resolved.directory, resolved.config)
            attempts.append(self._load_one(source, holding))
        loaded: dict[int, LoadedVersion] = {}
        failures: dict[int, HalimedeError] = {}
        for number, outcome in zip(holdings, await asyncio.gather(*attempts), strict=True):
            if isinstance(outcome, HalimedeError):
                failures[number] = outcome
            else:
                if self._settings.summary_latencies:
                    outcome.statistics.summaries = LatencySummaries()
                loaded[number] = outcome
        return loaded, failures

    async def _load_one(self, source: ModelSource, holding: Holding) -> LoadedVersion | HalimedeError:
        long = _LongWarmUp(self._loop)
        load = partial(load_with_retries, source, self._settings, self._workers, long.tell)
        async with self.slots:
            loaded = self._loop.run_in_executor(self._loaders, self._memory.load, holding, source, load)
            return await long.wait_for(loaded, self.slots)

    def _failed(
        self, record: ModelRecord, changed: list[int], failures: dict[int, HalimedeError]
    ) -> HalimedeError:
        """Note why versions failed; none of those that were being loaded is there."""
        reasons = {number: f"{error.code.words}: {error}" for number, error in failures.items()}
        for number, reason in reasons.items():
            logger.error("failed to load '%s' version %d: %s", record.name, number, reason)
        for number in changed:
            version = record.versions[number]
            if version.state is VersionState.LOADING:
                unloaded = number not in reasons  # its siblings failed
                reason = UNLOADED if unloaded else reasons[number]
                self._table.move(record, version, VersionState.UNAVAILABLE, reason, unloaded)
        self._table.tell_readiness()
        logger.info("failed to load '%s'", record.name)
        if not failures:
            return UnavailableError("Server is stopping, models are no longer loaded")
        clauses = [
            f"version {n} is at {record.versions[n].state.value if n not in changed else 'UNAVAILABLE'} state: "
            f"{reason};\n"
            for n, reason in reasons.items()
        ]
        shortages = (type(error) for error in failures.values() if isinstance(error, OutOfMemoryError))
        kind = next(shortages, InvalidArgumentError)
        return kind(f"load failed for model '{record.name}': {''.join(clauses)}")


class _LongWarmUp:
    """A load that lets others begin once its warm-up takes long."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: asyncio.Future[None] = loop.create_future()

    def tell(self) -> None:
        """Its warm-up takes long. May be called again, and in any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self._told.done():
            self._told.set_result(None)

    async def wait_for(self, load: asyncio.Future[T], slots: LoadSlots) -> T:
        """What the load, which has a slot, gives; meanwhile another one may get the slot."""
        either: set[asyncio.Future[Any]] = {load, self._told}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if load.done():
            return load.result()
        async with slots.stand_aside():
            return await load


def load_with_retries(
    source: ModelSource, settings: EngineSettings, workers: WorkerHost, on_long: Callable[[], None]
) -> LoadedVersion | HalimedeError:
    """The version, loaded; or why the last attempt failed. Blocks."""
    for attempt in range(settings.load_retry_count):
        try:
            return load_version(source, settings, workers, on_long)
        except HalimedeError as error:
            logger.warning(
                "attempt %d to load '%s' version %d failed: %s",
                attempt + 1,
                source.name,
                source.version,
                error,
            )
    try:
        return load_version(source, settings, workers, on_long)
    except HalimedeError as error:
        return error


def _directory(name: str, snapshot: Snapshot, files: OverrideFiles | None) -> Path:
    """The model's directory, before agents look at it.

    Raises:
        HalimedeError: there is none, or there are several.
    """
    if files is not None:
        return files.directory
    if not snapshot.directories:
        raise NotFoundError("model not found in any model repository")
    if len(snapshot.directories) > 1:
        raise InvalidArgumentError(AMBIGUOUS)
    return snapshot.directories[0]


def _bases(resolved: ResolvedModel, contents: Fingerprint | None) -> dict[int, Basis | None]:
    """Version → what it would be loaded from, None for files that nothing is known of."""
    if contents is None:
        return dict.fromkeys(resolved.versions)
    config = ModelConfig()
    config.CopyFrom(resolved.config)
    config.ClearField("version_policy")
    config.ClearField("instance_group")
    settings = config.SerializeToString(deterministic=True)
    instances = tuple(group.SerializeToString(deterministic=True) for group in resolved.config.instance_group)
    return {
        number: Basis(resolved.directory, (contents.shared, contents.versions[number]), settings, instances)
        if number in contents.versions
        else None
        for number in resolved.versions
    }


def _stays(record: ModelRecord, number: int, basis: Basis | None) -> bool:
    """Whether the version serves already, just as it would be loaded now."""
    version = record.versions.get(number)
    return version is not None and version.serving is not None and basis == version.serving.basis is not None
