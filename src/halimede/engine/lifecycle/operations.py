"""Operations on models: on one model they take turns in order of arrival, on different models they run side by side."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from halimede.core.clock import SECOND, Clock
from halimede.core.errors import InvalidArgumentError, UnavailableError
from halimede.core.tasks import Tasks
from halimede.engine.lifecycle.dependencies import circle
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.lifecycle.version_states import ModelRecord
from halimede.engine.memory.room import Room, RoomTakenError

Work = Callable[[ModelRecord], Coroutine[Any, Any, None]]


class Operations:
    """The operations on all models. Lives on the event loop.

    Attributes:
        under_way: those that are done or wait for their turn.
    """

    def __init__(
        self, table: ModelTable, room: Room, clock: Clock, loop: AbstractEventLoop, patience_s: float
    ) -> None:
        """None, so far.

        Args:
            table: the models.
            room: the room for more.
            clock: the time.
            loop: the event loop.
            patience_s: how long a load may wait for the room that others take.
        """
        self.under_way = Tasks()
        self._table = table
        self._room = room
        self._clock = clock
        self._loop = loop
        self._patience = round(patience_s * SECOND)

    async def take_turn(self, name: str, work: Work) -> None:
        """Do the work once all that came before it on the same model is done.

        It goes on if the caller gives up, as the handler of a client that closes its connection may.
        """
        record = self._table.records.setdefault(name, ModelRecord(name))
        record.operations += 1
        await self.under_way.finish(f"loading or unloading model '{name}'", self._work(record, work))

    async def _work(self, record: ModelRecord, work: Work) -> None:
        try:
            async with record.turn:
                if self._table.stopping:
                    raise UnavailableError("Server is stopping, models are no longer loaded or unloaded")
                await work(record)
        finally:
            record.operations -= 1
            if not (record.operations or record.known or record.reason):
                del self._table.records[record.name]
            self._room.changed()

    async def load(self, name: str, work: Work, done: Callable[[], bool] = lambda: False) -> None:
        """Load a model in its turn; if it and others take the room from each other, again when it comes first.

        Args:
            name: the model.
            work: loads it.
            done: whether that need not be done again, as somebody else has done it.
        """
        with suppress(RoomTakenError):
            await self.take_turn(name, work)
            return
        async with self._room.first(name, done) as is_first:
            loaded = not is_first
            while not loaded:
                with suppress(RoomTakenError):
                    await self.take_turn(name, work)
                    loaded = True

    @contextmanager
    def wanted(self, name: str) -> Iterator[None]:
        """While somebody waits for the load of a model, though not for ever for the room that others take."""
        release = self._room.hold(name)
        timer = self._clock.call_at(self._clock.now() + self._patience, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    @contextmanager
    def waiting(self, model: str, target: str) -> Iterator[None]:
        """While the model, which is being loaded, waits for the target to be loaded or unloaded.

        Raises:
            InvalidArgumentError: the target waits for the model, or is an ensemble that needs it.
        """
        records = self._table.records
        if target == model:
            raise InvalidArgumentError(f"model '{model}' is being loaded; it cannot load or unload itself")
        if circle(model, (target,), records):
            raise InvalidArgumentError(
                f"model '{model}' is being loaded and cannot wait for '{target}', "
                f"which itself waits for '{model}' to be loaded"
            )
        waits = records[model].waits
        waits[target] += 1
        try:
            yield
        finally:
            waits[target] -= 1
