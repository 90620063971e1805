"""Loading ensembles, and keeping them in line with the models that they need.

An ensemble serves while every model that it needs serves and fits. It is bound to those versions: when others take
their place, it is planned again and bound to the new ones, and requests that it has in flight go on with the old ones,
which serve until then. When a model goes, or no longer fits, the ensemble is unavailable, and says why; it serves
again as soon as the model is back. All that happens in the same turn of the loop as the change to the model.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from halimede.backends.base import ModelSource
from halimede.config.ensembles import needs_of
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate import validate
from halimede.config.validate.model import uncacheable_if_decoupled
from halimede.core.clock import Clock
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnavailableError,
)
from halimede.engine.cache.access import cache_access
from halimede.engine.cache.store import Cache
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.lifecycle.cached_content import content_of
from halimede.engine.lifecycle.dependencies import circle, dependents, lacking
from halimede.engine.lifecycle.loading import first_response_bounds
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.version_states import (
    UNLOADED,
    Blueprint,
    ModelRecord,
    Serving,
    Version,
    VersionState,
)
from halimede.engine.lifecycle.version_swaps import VersionSwaps
from halimede.engine.memory.room import RoomTakenError
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import ModelStatistics
from halimede.engine.summaries import LatencySummaries
from halimede.repository.basis import Basis
from halimede.repository.labels import read_labels
from halimede.repository.resolve import ResolvedModel

logger = logging.getLogger("halimede")

LoadNeeded = Callable[[str], Awaitable[HalimedeError | None]]
"""Loads a model that an ensemble needs, or waits for its load, if that is for the lifecycle to do; gives what went
wrong with the load, None for nothing."""


Steps = Mapping[tuple[str, int], Serving]
"""What serves for each model and version that an ensemble's steps name."""

_FEW_STEPS = 16
"""So many are planned in about a millisecond."""

_LOADS_OF_NEEDED = 10
"""How often the models that an ensemble needs are loaded again for it while others unload them."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan, and what it was made from."""

    steps: Steps
    plan: EnsemblePlan


class EnsembleLoader:
    """Makes ensembles from models that are loaded. Lives on the event loop."""

    def __init__(
        self,
        clock: Clock,
        loop: AbstractEventLoop,
        disk: Executor,
        table: ModelTable,
        swaps: VersionSwaps,
        load_needed: LoadNeeded,
        cache: Cache | None,
        *,
        summaries: bool = False,
    ) -> None:
        """A loader that reads directories on `disk`, and loads the models that an ensemble needs by `load_needed`.

        Responses of ensembles that want it are kept in `cache`.
        """
        self._clock = clock
        self._loop = loop
        self._disk = disk
        self._table = table
        self._swaps = swaps
        self._load_needed = load_needed
        self._cache = cache
        self._summaries = summaries
        swaps.on_change.append(self._follow)

    async def load(
        self, record: ModelRecord, resolved: ResolvedModel, bases: Mapping[int, Basis | None]
    ) -> None:
        """Load an ensemble, after the models that it needs.

        If nothing served before, and it fails for one of its models, it is loaded when that model allows it.

        Args:
            record: the ensemble.
            resolved: what its directory says.
            bases: what each of its versions stands on.

        Raises:
            InvalidArgumentError: it is wrong, or a model that it needs is missing or does not fit.
            OutOfMemoryError: there is no memory for a model that it needs.
            UnavailableError: the server is stopping.
        """
        config = resolved.config
        needs = needs_of(config)
        logger.info("loading: %s:%s", record.name, ", ".join(map(str, bases)))
        fresh = bases.keys() - record.versions.keys()
        for number in bases:
            version = record.versions.setdefault(number, Version(number))
            if version.state is not VersionState.READY:
                self._table.move(record, version, VersionState.LOADING)
        blueprint = None
        shortage = None
        record.loading = True
        record.pending = needs
        try:
            labels = await self._loop.run_in_executor(self._disk, _validated, config, resolved.directory)
            shortage = await self._load_all_needed(record.name, needs)
            if self._table.stopping:
                raise UnavailableError("Server is stopping, models are no longer loaded")
            blueprint = Blueprint(resolved.directory, config, labels, bases, needs)
            planned = await self._plan_aside(record, blueprint)
            if self._table.stopping:
                raise UnavailableError("Server is stopping, models are no longer loaded")
            loaded = self._build(record, blueprint, planned)
        except HalimedeError as error:
            if blueprint is not None and not record.models:
                record.blueprint = blueprint
            raise self._failed(record, fresh, shortage or error) from error
        finally:
            record.loading = False
            record.pending = ()
        record.blueprint = blueprint
        self._swaps.swap(record, config, bases, loaded)

    async def _load_all_needed(self, name: str, needs: tuple[str, ...]) -> OutOfMemoryError | None:
        """Have the models loaded that the ensemble needs, again if one is unloaded while others load.

        The ensemble is loaded after these unloads, as if they had come first.

        Returns:
            the want of memory that kept one from being loaded, None if there was none.
        """
        for _ in range(_LOADS_OF_NEEDED):
            # an ensemble that needs itself would wait for itself for ever
            if circle(name, needs, self._table.records):
                break
            failures = await self.load_needed(needs)
            if shortage := next((each for each in failures if isinstance(each, OutOfMemoryError)), None):
                return shortage
            records = [self._table.records.get(need) for need in needs]
            if any(failures) or all(record is not None and record.models for record in records):
                break
        return None

    async def load_needed(self, needs: tuple[str, ...]) -> list[HalimedeError | None]:
        """Have the models loaded that an ensemble needs, as far as that is for the lifecycle to do.

        Returns:
            what went wrong with each.
        """
        return await asyncio.gather(*(self._load_needed(need) for need in needs))

    def _failed(self, record: ModelRecord, fresh: Collection[int], error: HalimedeError) -> HalimedeError:
        """Note why the ensemble failed to load; versions that it has not had before are none of it.

        As in Triton, it holds readiness back no more than a model whose configuration cannot be read.
        """
        stopping = self._table.stopping
        for version in record.versions.values():
            if version.state is VersionState.LOADING:
                reason = UNLOADED if stopping else error.message
                self._table.move(record, version, VersionState.UNAVAILABLE, reason, withdrawn=True)
        if stopping:
            self._table.tell_readiness()
            return error
        for number in fresh:
            del record.versions[number]
        record.reason = error.message
        self._table.tell_readiness()
        level = logging.INFO if isinstance(error, RoomTakenError) else logging.ERROR  # it is tried again
        logger.log(level, "failed to load '%s': %s", record.name, error)
        kind = type(error) if isinstance(error, OutOfMemoryError) else InvalidArgumentError
        return kind(f"load failed for model '{record.name}': {error}\n")

    # Following the models that it needs

    def _follow(self, name: str) -> None:
        """LoadNeeded the ensembles that need this model in line with what serves now."""
        if self._table.stopping:
            return
        for record in dependents(name, self._table.records):
            # one that is being loaded, and does not serve yet, will look by itself
            if record.blueprint is not None and (record.models or not record.loading):
                self._settle(record, record.blueprint)

    def _settle(self, record: ModelRecord, blueprint: Blueprint) -> None:
        """LoadNeeded an ensemble in line with the models that it needs."""
        served = bool(record.models)
        try:
            loaded = self._build(record, blueprint)
        except HalimedeError as error:
            if served:
                logger.warning("'%s' is unavailable: %s", record.name, error)
            self._swaps.withdraw(record)
            return
        record.reason = ""
        if loaded:
            self._swaps.swap(record, blueprint.config, blueprint.bases, loaded)
            if not served:
                logger.info("successfully loaded '%s'", record.name)

    async def _plan_aside(self, record: ModelRecord, blueprint: Blueprint) -> _Planned | None:
        """The plan of an ensemble of many steps, made on a thread, from the models that serve now.

        Returns:
            None if there are few steps, or what is wrong is found without a plan: `_build` will plan, or tell.

        Raises:
            InvalidArgumentError: the models do not fit.
            InternalError: the server is at fault.
        """
        if len(blueprint.config.ensemble_scheduling.step) <= _FEW_STEPS:
            return None
        if self._mismatch(record, blueprint):
            return None
        steps = self._steps(blueprint)
        plan = await self._loop.run_in_executor(self._disk, _plan, record.name, blueprint.config, steps)
        return _Planned(steps, plan)

    def _mismatch(self, record: ModelRecord, blueprint: Blueprint) -> str:
        """Which model that the ensemble needs is missing, or how it needs itself; "" for neither."""
        records = self._table.records
        return circle(record.name, blueprint.needs, records) or lacking(
            record.name, blueprint.config, records
        )

    def _steps(self, blueprint: Blueprint) -> Steps:
        """What serves now for each model that an ensemble's steps name. All are there."""
        needed = dict.fromkeys(
            (step.model_name, step.model_version)
            for step in blueprint.config.ensemble_scheduling.step
            if step.model_version != 0  # the plan says what is wrong with that
        )
        return {each: _serving(self._table.records[each[0]], each[1]) for each in needed}

    def _build(
        self, record: ModelRecord, blueprint: Blueprint, planned: _Planned | None = None
    ) -> dict[int, Serving]:
        """Those versions of the ensemble that are to be replaced, made from the models that serve now.

        Args:
            record: the ensemble.
            blueprint: what it is made by.
            planned: its plan; it is planned again if other models serve now.

        Raises:
            InvalidArgumentError: a model that it needs is missing or does not fit, it needs itself, or it is decoupled
                by its models and wants the response cache.
            InternalError: the server is at fault.
        """
        config = blueprint.config
        if wrong := self._mismatch(record, blueprint):
            raise InvalidArgumentError(wrong)
        steps = self._steps(blueprint)
        uses = tuple(dict.fromkeys(steps.values()))

        def find(name: str, version: int) -> ServedModel:
            return steps[name, version].model

        if planned is None or planned.steps != steps:
            planned = _Planned(steps, _plan(record.name, config, steps))
        plan = planned.plan
        if plan.signature.decoupled and config.response_cache.enable:
            raise InvalidArgumentError(uncacheable_if_decoupled(config).message)
        loaded = {}
        for number, basis in blueprint.bases.items():
            present = record.versions[number].serving if number in record.versions else None
            same = record.blueprint is blueprint or basis is not None
            if present is not None and same and present.basis == basis and present.uses == uses:
                continue
            if present is not None and record.blueprint is blueprint:
                statistics = present.model.statistics  # the same ensemble goes on, with other models
            else:
                statistics = ModelStatistics(first_response_bounds(config))
                statistics.summaries = LatencySummaries() if self._summaries else None
            source = ModelSource(record.name, number, blueprint.directory, config)
            labels = blueprint.labels
            cache = cache_access(self._cache, config, number, content_of(basis, uses))
            model = EnsembleModel(source, plan, find, self._clock, self._loop, labels, statistics, cache)
            loaded[number] = Serving(model, basis, uses=uses)
        return loaded


def _plan(name: str, config: ModelConfig, steps: Steps) -> EnsemblePlan:
    """The plan of an ensemble from what serves its steps.

    Raises:
        InvalidArgumentError: the models do not fit.
        InternalError: the server is at fault.
    """
    try:
        return EnsemblePlan.from_config(config, lambda model, version: steps[model, version].model.config)
    except HalimedeError:
        raise
    except Exception as error:
        logger.exception("planning ensemble '%s'", name)
        raise InternalError(f"{type(error).__name__}: {error}") from error


def _serving(record: ModelRecord, version: int) -> Serving:
    """What serves that version of a model, the highest one for -1. There is such a version."""
    ready = {number: each.serving for number, each in record.versions.items() if each.serving is not None}
    return ready[max(ready) if version == -1 else version]


def _validated(config: ModelConfig, directory: Path) -> dict[str, list[str]]:
    """Output → class labels, of a configuration with which nothing is wrong. Blocks.

    Raises:
        InvalidArgumentError: something is wrong with it.
        InternalError: a file of labels cannot be read.
    """
    validate(config)
    return {
        output.name: read_labels(directory, output.label_filename)
        for output in config.output
        if output.label_filename
    }
