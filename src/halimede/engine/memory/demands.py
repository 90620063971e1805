"""Loads that requests wait for: one load however many wait, each no longer than it wants to."""

import asyncio
from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from halimede.core import tasks
from halimede.core.clock import SECOND, Clock
from halimede.core.errors import HalimedeError, NotFoundError, UnavailableError
from halimede.engine.memory.room import AbandonedError, NoRoomError, Room
from halimede.repository.snapshots import Snapshot

BACK_OFF_SECONDS = 1
"""A model that failed to load is not tried again for so long, unless its files have changed."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A load that failed: of what lay on disk then, and until when that is known to fail."""

    error: HalimedeError
    snapshot: Snapshot
    until: int


class Demands:
    """The loads that requests wait for. Lives on the event loop."""

    def __init__(
        self,
        clock: Clock,
        loop: AbstractEventLoop,
        room: Room,
        load: Callable[[str], Awaitable[None]],
        look: Callable[[str], Awaitable[Snapshot]],
    ) -> None:
        """None so far.

        Args:
            clock: the time.
            loop: the event loop.
            room: keeps the room of a model until those that waited for it had their turn.
            load: loads a model that is not loaded.
            look: what there is of a model on disk.
        """
        self._clock = clock
        self._loop = loop
        self._room = room
        self._load_model = load
        self._look = look
        self._loads: dict[str, Task[None]] = {}
        self._failures: dict[str, _Failure] = {}

    async def wait(self, name: str, timeout_s: float, caller: str = "") -> None:
        """Return when the model is loaded; what the caller does without a further await, it does before it may go.

        Args:
            name: the model.
            timeout_s: how long to wait; the load goes on.
            caller: the model whose request waits, if it is one's.

        Raises:
            UnavailableError: it takes longer.
            HalimedeError: why it cannot be loaded.
        """
        release = self._room.hold(name, caller)
        expired: Future[None] = self._loop.create_future()
        timer = self._clock.call_at(self._clock.now() + round(timeout_s * SECOND), _expire, expired)
        try:
            error: BaseException | None = AbandonedError("by those that waited before")
            while isinstance(error, AbandonedError):
                task = self._loads.get(name) or self._begin(name)
                await asyncio.wait({task, expired}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    msg = f"model '{name}' is still being loaded after {timeout_s:g} s; the load goes on"
                    raise UnavailableError(msg)
                error = task.exception()
            if isinstance(error, HalimedeError):
                raise _again(error)
            if error is not None:
                raise error
        finally:
            timer.cancel()
            release()

    def _begin(self, name: str) -> Task[None]:
        task = self._loads[name] = tasks.submit(self._load(name))

        def done(_: Task[None]) -> None:
            del self._loads[name]
            tasks.log_unforeseen(f"loading model '{name}' on demand", task)

        task.add_done_callback(done)
        return task

    async def _load(self, name: str) -> None:
        failure = self._failures.get(name)
        if failure is not None:
            if self._clock.now() < failure.until and await self._look(name) == failure.snapshot:
                raise failure.error
            self._failures.pop(name, None)
        try:
            await self._load_model(name)
        except (NotFoundError, NoRoomError):  # which cost next to nothing to find out
            raise
        except HalimedeError as error:
            now = self._clock.now()
            self._failures = {key: each for key, each in self._failures.items() if now < each.until}
            until = now + BACK_OFF_SECONDS * SECOND
            self._failures[name] = _Failure(_again(error), await self._look(name), until)
            raise


def _again(error: HalimedeError) -> HalimedeError:
    """The same error, to be raised once more: without what it carries of where it was raised before."""
    return type(error)(error.message)


def _expire(expired: Future[None]) -> None:
    if not expired.done():
        expired.set_result(None)
