"""Making room for a model that is to be loaded: what must go, what must stay, and when to wait.

A model stays while requests are in flight in it, while somebody waits for it or is about to send it a request, while
something is done with it, and while an ensemble needs it that is loaded or being loaded. Of the others, those that were
used longest ago are evicted, one by one, until there is room. If all must stay, the load waits until one need not,
for as long as somebody waits for the load.

Loads may wait for each other: two ensembles with half of their models loaded each keep the other from loading the rest.
So when all that could free room waits for room itself, the load that began to wait last gives up, and what it has
brought may go. Those that gave up are tried again one by one, and do not have to give up again for later ones. A load
that cannot go on though it is alone never can.
"""

import asyncio
from asyncio import AbstractEventLoop, Future
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from halimede.core.errors import OutOfMemoryError, UnavailableError
from halimede.core.tasks import Tasks
from halimede.engine.memory.budget import human
from halimede.engine.memory.ledger import Ledger
from halimede.engine.memory.models import ModelState, ModelStates

Evict = Callable[[str], Awaitable[None]]
"""Unloads a model, with what only it needs, and returns when their memory is given back."""


class NoRoomError(OutOfMemoryError):
    """The budget has no room for a model."""


class AbandonedError(NoRoomError):
    """A load would have had to wait for room, and nobody waited for the load."""


class RoomTakenError(NoRoomError):
    """Loads take the room from each other, and this one gave up: to be tried again in its turn, see `Room.first`."""


class Room:
    """The room within the budget. Lives on the event loop."""

    def __init__(
        self, ledger: Ledger, table: ModelStates, loop: AbstractEventLoop, evict: Evict | None
    ) -> None:
        """All of the budget.

        Args:
            ledger: who has how much of it.
            table: the models.
            loop: the event loop.
            evict: how models are evicted; None if none may be, so that nothing waits either.
        """
        self._ledger = ledger
        self._table = table
        self._loop = loop
        self._evict = evict
        self._pins: Counter[str] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._evicting = asyncio.Lock()
        self._waiting: dict[
            str, None
        ] = {}  # models to be loaded that wait for room, in the order of their waits
        self._yielding: Counter[str] = Counter()  # models whose loads gave up, and wait for their turn
        self._first = ""  # the model whose turn it is
        self._change: Future[None] | None = None

    # What must stay

    def hold(self, name: str, caller: str = "") -> Callable[[], None]:
        """Let the model stay, or be waited for, until the returned function is called.

        Args:
            name: the model.
            caller: a model whose request does not end before the hold does.
        """
        self._pins[name] += 1
        if caller:
            self._calls[caller, name] += 1
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                _decrease(self._pins, name)
                if caller:
                    _decrease(self._calls, (caller, name))
                self.changed()

        return release

    def changed(self) -> None:
        """There may be more room, or less hope for it, than before."""
        if self._change is not None:
            self._change.set_result(None)
            self._change = None

    def idle(self, record: ModelState) -> bool:
        """Whether nothing is done with the model, as far as it does not matter who needs it.

        What a client brought (a configuration, files) does not lie on a disk to be loaded again: it is never idle.
        A load that gave up holds the model too, but needs no room until its turn.
        """
        models = record.models
        return (
            bool(models)
            and not record.operations
            and record.snapshot is not None
            and self._pins[record.name] <= self._yielding[record.name]
            and not any(model.inflight for model in models.values())
        )

    def _victim(self) -> str | None:
        """The model to evict first, None if all must stay."""
        records = self._table.records
        needed = {
            need for record in records.values() if record.models or record.loading for need in record.needs
        }

        def may_go(name: str) -> bool:
            return name not in needed and name in records and self.idle(records[name])

        return self._ledger.victim(may_go)

    # Making room

    async def make(self, name: str, size: int) -> None:
        """Return when so many bytes are free. The caller takes them before anything else happens.

        Args:
            name: the model that is to be loaded.
            size: bytes that it will take.

        Raises:
            NoRoomError: it is larger than the budget; or all must stay, and nobody waits for it any more, or nothing
                would change if somebody did.
            UnavailableError: the server is stopping.
        """
        ledger = self._ledger
        if ledger.budget is not None and size > ledger.budget:
            raise NoRoomError(
                f"model '{name}' needs {human(size)} of memory, more than all models may take together "
                f"({human(ledger.budget)}); raise --model-memory-budget"
            )
        try:
            while not ledger.fits(size):
                if self._evict is None:
                    raise self._no_room(name, size, "unload others")
                if not await self._evict_one(size):
                    await self._wait(name, size)
        finally:
            if name in self._waiting:
                del self._waiting[name]
                self.changed()

    async def shrink(self) -> None:
        """Evict what may go until the models keep to the budget, or none may go."""
        while self._evict is not None and not self._ledger.fits(0) and await self._evict_one(0):
            pass

    @asynccontextmanager
    async def first(self, name: str, done: Callable[[], bool]) -> AsyncIterator[bool]:
        """When those that gave up earlier have had their turn: others give up first then, not the load of this model.

        Args:
            name: the model.
            done: whether it need not be loaded any more, as somebody else has.

        Yields:
            False if that is so.

        Raises:
            AbandonedError: nobody waits for the model any more.
        """
        self._yielding[name] += 1
        self.changed()  # what its load had brought may go
        try:
            while self._first and self._wanted(name) and not done():
                await self._next_change()
        finally:
            _decrease(self._yielding, name)
        if done():
            yield False
            return
        if not self._wanted(name):
            raise AbandonedError(f"there was no room for model '{name}' for as long as it was waited for")
        self._first = name
        try:
            yield True
        finally:
            self._first = ""
            self.changed()

    async def _evict_one(self, size: int) -> bool:
        """Evict a model unless so much is free: False if none may go. One at a time, as one may be enough for all."""
        async with self._evicting:
            if self._ledger.fits(size):
                return True
            victim = self._victim()
            if victim is None:
                return False
            assert self._evict is not None
            await self._evict(victim)
            return True

    async def _wait(self, name: str, size: int) -> None:
        """Return when something has changed."""
        if self._table.stopping:
            raise UnavailableError("Server is stopping, models are no longer loaded")
        if not self._wanted(name):
            why = "all other models were in use for as long as it was waited for"
            raise AbandonedError(str(self._no_room(name, size, why)))
        if name not in self._waiting:
            self._waiting[name] = None
            self.changed()  # others may have to give up for it
        if not self._may_change() and name == self._last():
            if len(self._parties()) > 1:
                raise RoomTakenError(str(self._no_room(name, size, "other loads need the rest")))
            raise self._no_room(name, size, "all other models are needed for it, or cannot be loaded again")
        await self._next_change()

    def _last(self) -> str:
        """The model whose load is to give up if one must: the last of those that wait, and not for the first."""
        waiting = list(reversed(self._waiting))
        return next((name for name in waiting if self._first not in self._with_users((name,))), waiting[0])

    async def _next_change(self) -> None:
        """Return when something has changed, or some model has answered all its requests."""
        if self._change is None:
            self._change = self._loop.create_future()
        async with Tasks() as tasks:
            drained = [
                tasks.submit(model.drained())
                for record in self._table.records.values()
                for model in record.models.values()
                if model.inflight
            ]
            await asyncio.wait({self._change, *drained}, return_when=asyncio.FIRST_COMPLETED)

    def _may_change(self) -> bool:
        """Whether room may become free though nothing that waits for room gets any."""
        if any(holding.leaving for holding in self._ledger):
            return True
        stuck = self._with_users({*self._waiting, *self._callers_of_yielding()})
        blocked = {caller for caller, target in self._calls if target in stuck or target in self._yielding}
        return any(
            record.operations
            or (record.name in self._pins and record.name not in self._yielding)
            or (record.name not in blocked and any(model.inflight for model in record.models.values()))
            for record in self._table.records.values()
            if record.name not in stuck
        )

    def _parties(self) -> set[str]:
        """The loads that keep the room from each other: those that somebody waits for, or that no other load does."""
        waiting = self._with_users(self._waiting)
        steps = {name for each in waiting if each in self._table.records for name in self._ahead(each)}
        parties = {name for name in waiting if name in self._pins or name not in steps}
        # when one load of a model has given up, another load of the same model may still compete for room
        return parties - self._callers_of_yielding()

    def _ahead(self, name: str) -> tuple[str, ...]:
        return self._table.records[name].ahead

    def _callers_of_yielding(self) -> set[str]:
        """Models that are being loaded and have called for others to be loaded which wait for their turn."""
        return {
            record.name
            for record in self._table.records.values()
            if any(record.waits[name] for name in self._yielding if name in record.waits)
        }

    def _wanted(self, name: str) -> bool:
        """Whether somebody waits for the model, or for one whose load waits for it."""
        return not self._pins.keys().isdisjoint(self._with_users((name,)))

    def _with_users(self, names: Iterable[str]) -> set[str]:
        """These models, and those whose loads wait for them."""
        found = set(names)
        records = [record for record in self._table.records.values() if record.operations]
        while more := [
            record.name
            for record in records
            if record.name not in found and not found.isdisjoint(record.ahead)
        ]:
            found.update(more)
        return found

    def _no_room(self, name: str, size: int, why: str) -> NoRoomError:
        budget = self._ledger.budget or 0
        free = max(0, self._ledger.free())
        return NoRoomError(
            f"model '{name}' needs {human(size)} of memory, but of the {human(budget)} that all models may take "
            f"together {human(free)} are free: {why}, or raise --model-memory-budget"
        )


def _decrease(counter: Counter[str] | Counter[tuple[str, str]], key: object) -> None:
    """Count one less; no key is kept for none."""
    counts: Counter[object] = counter  # type: ignore[assignment]  # of whichever keys
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
