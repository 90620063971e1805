"""The memory of all models: counted from before a load to after the end, kept to a budget if there is one.

A model that runs in the server's own process takes by what that grows while it is loaded, if nothing else is loaded or
unloaded meanwhile; otherwise, what it took before or what its files suggest. A model in worker processes takes what
these have for themselves, which is measured again when it matters, as they grow while they work.

All of that is main memory. A model's memory on a GPU would be a second number of its `Holding`, with a budget a device.
"""

from asyncio import AbstractEventLoop, Task
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from halimede.backends.base import ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core import memory, tasks
from halimede.core.clock import SECOND, Clock, Timer
from halimede.core.errors import HalimedeError
from halimede.engine.loaded_version import LoadedVersion
from halimede.engine.memory.budget import human
from halimede.engine.memory.footprints import Footprints, estimate
from halimede.engine.memory.ledger import Holding, Ledger
from halimede.engine.memory.meter import GrowthMeter
from halimede.engine.memory.models import ModelStates
from halimede.engine.memory.room import Evict, NoRoomError, Room
from halimede.repository.basis import Basis

T = TypeVar("T")

FRESH_SECONDS = 1
"""Worker processes that were measured so lately are not measured again."""

INTERVAL_SECONDS = 30
"""Worker processes are measured at least so often where models may be evicted: they may grow beyond the budget."""


class ModelMemory:
    """What models take, and the room for more. Lives on the event loop, but for `load`.

    Attributes:
        ledger: who has how much.
        room: makes room.
        loads: versions that were loaded.
        evictions: models that were evicted.
    """

    def __init__(
        self,
        ledger: Ledger,
        table: ModelStates,
        clock: Clock,
        loop: AbstractEventLoop,
        disk: Executor,
        evict: Evict | None,
    ) -> None:
        """Nothing is loaded.

        Args:
            ledger: empty.
            table: the models.
            clock: the time.
            loop: the event loop.
            disk: for what blocks a little.
            evict: how models are evicted, None if none may be.
        """
        self.ledger = ledger
        self.room = Room(ledger, table, loop, None if evict is None else self._evict)
        self.loads = 0
        self.evictions = 0
        self._evict_model = evict
        self._table = table
        self._clock = clock
        self._loop = loop
        self._disk = disk
        self._footprints = Footprints()
        self._meter = GrowthMeter()
        self._measured_at: int | None = None
        self._timer: Timer | None = None
        self._watching: Task[None] | None = None
        self._shrinking: Task[None] | None = None

    async def stop(self) -> None:
        """Look after nobody any more; whoever waits for room is told that there will be none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (self._watching, self._shrinking):
            if task is not None:
                await task
        self.room.changed()

    # A load

    @asynccontextmanager
    async def reserved(
        self, name: str, directory: Path, config: ModelConfig, bases: Mapping[int, Basis | None]
    ) -> AsyncIterator[dict[int, Holding]]:
        """Room for versions that are about to be loaded, given back if that fails.

        Args:
            name: the model.
            directory: its directory.
            config: its configuration.
            bases: version → what it will be loaded from.

        Raises:
            OutOfMemoryError: there is none.
            UnavailableError: the server is stopping.
        """
        holdings = {}
        for number, basis in bases.items():
            size = self._footprints.expected(name, number, basis)
            if size is None:
                size = await self._loop.run_in_executor(self._disk, estimate, directory, number, config)
            holdings[number] = Holding(name, number, size, basis)
        if holdings and self.ledger.budget is not None:
            await self._measure_workers()
            await self.room.make(name, sum(holding.size for holding in holdings.values()))
        for holding in holdings.values():
            self.ledger.add(holding)
        try:
            yield holdings
        except BaseException:
            for holding in holdings.values():
                self.ledger.remove(holding)
            self.room.changed()
            raise

    def load(self, holding: Holding, source: ModelSource, work: Callable[[], T]) -> T:
        """What the work, which loads the version, gives. Blocks; called in a thread."""
        with suppress(HalimedeError):
            if not runs_in_process(source):
                # a framework that is imported now stays, whatever becomes of the model
                backend_class(source.config)
        measured = self._meter.begin()
        try:
            return work()
        finally:
            holding.grown = self._meter.taken(measured)

    async def settle(self, holdings: Mapping[int, Holding], loaded: Mapping[int, LoadedVersion]) -> None:
        """Versions are loaded: count what they take, and keep to the budget all the same.

        Raises:
            NoRoomError: they take more than there is, and nobody may be evicted.
        """
        expected = sum(holding.size for holding in holdings.values())
        for number, version in loaded.items():
            holding = holdings[number]
            holding.processes = version.processes
            holding.states = version.sequence_states
            self._watch_states(holding)
            workers = await self._loop.run_in_executor(self._disk, _workers_bytes, holding)
            size = workers or holding.grown
            if size is not None:
                reserved = version.reserved_bytes()
                holding.size = max(0, size) + reserved
                holding.least = holding.size if reserved else 0
                self._footprints.took(holding.name, number, holding.basis, holding.size)
            self.loads += 1
        if self.ledger.fits(0):
            self._watch()
            return
        if self._evict_model is not None:
            await self.room.shrink()
            self._watch()
            return
        taken = sum(holding.size for holding in holdings.values())
        if taken > expected:
            name = next(holding.name for holding in holdings.values())
            raise NoRoomError(
                f"model '{name}' takes {human(taken)} of memory, with which all models take more than the "
                f"{human(self.ledger.budget or 0)} that they may: unload others, or raise --model-memory-budget"
            )

    @asynccontextmanager
    async def resized(self, holding: Holding, before: int, after: int) -> AsyncIterator[None]:
        """Room for a version that serves to have another number of instances, given back if that fails.

        Args:
            holding: what it takes.
            before: how many instances it has.
            after: how many it will have.

        Raises:
            OutOfMemoryError: there is none.
            UnavailableError: the server is stopping.
        """
        more = max(0, holding.size * (after - before) // before)
        if more and self.ledger.budget is not None:
            await self._measure_workers()
            await self.room.make(holding.name, more)
        holding.size += more
        try:
            yield
        except BaseException:
            holding.size -= more
            self.room.changed()
            raise
        self._watch_states(holding)
        holding.least = holding.least * after // before
        if after < before:
            holding.size = holding.size * after // before
        size = await self._loop.run_in_executor(self._disk, _workers_bytes, holding)
        if size is not None:
            holding.size = size
        self.room.changed()
        self._watch()

    # States of sequences

    def _watch_states(self, holding: Holding) -> None:
        """Have the version's instances keep no more for sequences than there is room for."""
        if self.ledger.budget is not None:
            for states in holding.states():
                states.admit = partial(self._admit, holding)

    def _admit(self, holding: Holding, more: int) -> bool:
        """Whether the version may keep so many bytes more for sequences. Called in any thread."""
        if self.ledger.fits(more):
            return True
        budget = self.ledger.budget
        if self._evict_model is None or budget is None or holding.total + more > budget:
            return False
        self._loop.call_soon_threadsafe(self._make_room)
        return True

    def _make_room(self) -> None:
        """Evict others, in whose place there are states of sequences."""
        if self._shrinking is None and not self._table.stopping:
            self._shrinking = tasks.start("evicting models to make room for sequences", self._shrink())

    async def _shrink(self) -> None:
        try:
            await self.room.shrink()
        finally:
            self._shrinking = None

    # The end of a version

    async def close(self, holding: Holding | None, close: Callable[[], Awaitable[None]]) -> None:
        """Close a version, and count it no more; without a holding, nothing is counted."""
        if holding is None:
            await close()
            return
        measured = None
        if not holding.processes():
            measured = await self._loop.run_in_executor(self._disk, self._meter.begin)
        try:
            await close()
        finally:
            if measured is not None:
                size = await self._loop.run_in_executor(self._disk, self._meter.given_back, measured)
                if size is not None:
                    self._footprints.gave_back(holding.name, holding.version, holding.basis, size)
            self.ledger.remove(holding)
            self.room.changed()

    async def _evict(self, name: str) -> None:
        assert self._evict_model is not None
        self.evictions += 1
        await self._evict_model(name)

    # Worker processes

    async def _measure_workers(self) -> None:
        """Count what worker processes have for themselves now."""
        now = self._clock.now()
        if self._measured_at is not None and now - self._measured_at < FRESH_SECONDS * SECOND:
            return
        self._measured_at = now
        for holding in list(self.ledger):
            size = await self._loop.run_in_executor(self._disk, _workers_bytes, holding)
            if size is not None:
                holding.size = size
                self._footprints.took(holding.name, holding.version, holding.basis, size)

    def _watch(self) -> None:
        """Measure worker processes from time to time, while there are any that could be evicted."""
        watched = self.ledger.budget is not None and self._evict_model is not None
        if not watched or self._timer is not None or self._table.stopping:
            return
        if any(holding.processes() for holding in self.ledger):
            when = self._clock.now() + INTERVAL_SECONDS * SECOND
            self._timer = self._clock.call_at(when, self._look_after)

    def _look_after(self) -> None:
        self._watching = tasks.start("measuring worker processes", self._measure_and_shrink())

    async def _measure_and_shrink(self) -> None:
        try:
            await self._measure_workers()
            await self.room.shrink()
        finally:
            self._timer = None
            self._watching = None
            self._watch()


def _workers_bytes(holding: Holding) -> int | None:
    """Bytes that the version's worker processes have for themselves, or reserved; None if it has none. Blocks."""
    sizes = [memory.private_bytes(pid) for pid in holding.processes()]
    return max(sum(sizes), holding.least) if any(sizes) else None
