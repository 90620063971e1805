"""One endpoint: what is there is brought to what its record asks for; each step is kept before it is done.

Creating ──► InService | Failed
InService ──► Updating ──► InService                  a pending fleet takes the place of the current one when it is up
              Updating ──► RollingBack ──► InService  it does not come up: the current one stays
SystemUpdating ──► InService                          the host was started again
any ──► Deleting ──► gone
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from halimede.hosting.control.fleet import Fleet
from halimede.hosting.control.records import SETTLED, EndpointRecord, Status
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import RunningInstance

logger = logging.getLogger("halimede")

_LOOK_S = 0.5
"""Between two looks at whether an endpoint waits for room, while somebody waits for it."""

Keep = Callable[[EndpointRecord], Awaitable[None]]


class Endpoint:
    """One endpoint. Lives on the event loop.

    Attributes:
        record: what is known of it; `change` changes it.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        record: EndpointRecord,
        keep: Keep,
        on_gone: Callable[["Endpoint"], Awaitable[None]],
        adopted: Mapping[str, RunningInstance] | None = None,
    ) -> None:
        """An endpoint on which nothing is done before `work` is called.

        Args:
            dependencies: what it needs of the host.
            record: what is known of it.
            keep: writes the record to disk.
            on_gone: called when it has been deleted.
            adopted: instances that run already, by id.
        """
        self.record = record
        self._dependencies = dependencies
        self._keep = keep
        self._on_gone = on_gone
        self._adopted = adopted or {}
        self._current: Fleet | None = None
        self._pending: Fleet | None = None
        self._leaving: list[Fleet] = []  # others have taken their places
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._work_task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._settled = asyncio.Event()
        self._is_gone = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being done to it."""
        return self.record.status in SETTLED

    async def settled(self, timeout_s: float) -> None:
        """Return once nothing is being done to it any more, or it waits for room, or is gone, or the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not self._settled.is_set() and not self.waiting() and loop.time() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, loop.time() + _LOOK_S)):
                    await self._settled.wait()

    def release(self) -> None:
        """Let go on those that wait until it is settled."""
        self._settled.set()

    async def change(self, **members: Any) -> None:
        """Change members of the record, and do what it asks for then. What was being done is given up.

        Raises:
            ApiError: it cannot be kept; then nothing has changed.
        """
        async with self._changing:
            record = self.record
            before = {name: getattr(record, name) for name in (*members, "modified")}
            self._give_up()
            for name, value in {**members, "modified": time.time()}.items():
                setattr(record, name, value)
            self._settled.clear()
            try:
                await self._keep(record)
            except ApiError:
                for name, value in before.items():
                    setattr(record, name, value)
                raise
            finally:
                self.work()

    def work(self) -> None:
        """Do what the record asks for; what was being done is given up."""
        if self._is_gone:
            return
        self._give_up()
        if self.record.status is Status.DELETING:
            self._dependencies.table.withdraw(self.record.id)
        earlier = set(self._tasks)
        self._work_task = self._spawn(self._work(earlier))

    def _give_up(self) -> None:
        # at once: it might yet settle what is being changed
        if self._work_task is not None:
            self._work_task.cancel()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, earlier: set[asyncio.Task[None]]) -> None:
        given_up = [task for task in earlier if task.cancelling()]
        if given_up:
            await asyncio.wait(given_up)
        settings = self._dependencies.settings
        backoff = settings.backoff_s
        while True:
            try:
                await self._step()
                break
            except Exception:  # of one endpoint, and the log has what nobody foresaw
                logger.exception("endpoint '%s' is stuck in state %s", self.record.name, self.record.status)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, settings.longest_backoff_s)
        if self.is_settled:
            self._settled.set()

    async def _step(self) -> None:
        record = self.record
        if record.status is Status.DELETING:
            await self._delete()
            return
        if self.is_settled:
            return
        reason = record.reason
        if record.current is not None and self._current is None:
            reason = await self._resume() or reason
        if record.status is Status.ROLLING_BACK:
            await self._roll_back(reason)
        elif record.pending is not None:
            await self._replace()
        else:
            await self._apply(reason)

    async def _resume(self) -> str:
        """Bring the fleet up again that served before the host was started: "", or what is wrong with it.

        What does not come up is tried again and again: there was a time when it did.
        """
        record = self.record
        assert record.current is not None
        fleet = self._current = Fleet(self._dependencies, record, record.current)
        fleet.publish()
        try:
            await fleet.start(self._adopted, keep_trying=True)
        except ApiError as error:
            return error.message
        return ""

    async def _replace(self) -> None:
        """Bring up the pending fleet; then requests go there, and the one before it answers what it has been asked."""
        record = self.record
        assert record.pending is not None
        try:
            await self._wait_for_room()
            if self._pending is None:
                self._pending = Fleet(self._dependencies, record, record.pending)
            await self._pending.start(self._adopted)
        except Exception as error:
            await self._fail(error)
            return
        fleet = self._pending
        before, self._current, self._pending = self._current, fleet, None
        record.current, record.pending = record.pending, None
        fleet.publish()
        try:
            await self._become(Status.IN_SERVICE)
        finally:
            if before is not None:
                self._leaving.append(before)
                task = self._spawn(self._retire_replaced(before))
                self._retiring.add(task)
                task.add_done_callback(self._retiring.discard)

    async def _fail(self, error: Exception) -> None:
        """The pending fleet does not come up."""
        if isinstance(error, ApiError):
            reason = error.message
            logger.warning("endpoint '%s': %s", self.record.name, reason)
        else:  # of one endpoint, and the log has what nobody foresaw
            reason = "internal error; the log of the host has the details"
            logger.error("endpoint '%s' cannot be brought up", self.record.name, exc_info=error)
        if self._current is not None:
            await self._roll_back(reason)
            return
        if self._pending is not None:
            await self._pending.retire()
            self._pending = None
        await self._become(Status.FAILED, reason)

    async def _roll_back(self, reason: str) -> None:
        """End the pending fleet; the current one stays."""
        self.record.pending = None
        await self._become(Status.ROLLING_BACK, reason)
        if self._pending is not None:
            await self._pending.retire()
            self._pending = None
        await self._become(Status.IN_SERVICE, reason)

    async def _wait_for_room(self) -> None:
        """Return once what has been replaced lately has given back its GPUs, or whatever else it had."""
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def _retire_replaced(self, fleet: Fleet) -> None:
        """End a fleet whose place another one has taken."""
        try:
            await fleet.retire()
        except Exception:  # what is left of it is ended with the endpoint
            logger.exception("endpoint '%s': a fleet that was replaced does not end", self.record.name)
        else:
            self._leaving.remove(fleet)

    async def _apply(self, reason: str) -> None:
        """Change weights and counts of the fleet that serves."""
        record, fleet = self.record, self._current
        assert record.current is not None
        assert fleet is not None
        fleet.record = record.current
        now = fleet.counts()
        if any(count > now[name] for name, count in record.current.counts.items()):
            await self._wait_for_room()
        try:
            await fleet.apply()
        except ApiError as error:
            record.current.counts = fleet.counts()
            reason = error.message
        await self._become(Status.IN_SERVICE, reason)

    async def _delete(self) -> None:
        known = [fleet for fleet in (self._current, self._pending, *self._leaving) if fleet is not None]
        await asyncio.gather(*(fleet.retire() for fleet in known))
        grace = self._dependencies.settings.grace_s
        adopted = [each for each in self._adopted.values() if each.request.endpoint_id == self.record.id]
        await asyncio.gather(
            *(self._dependencies.substrate.terminate(each.request.id, grace) for each in adopted)
        )
        for kept in (self.record.current, self.record.pending):
            if kept is not None:
                await asyncio.to_thread(
                    shutil.rmtree, self._dependencies.directory / kept.id, ignore_errors=True
                )
        await self._on_gone(self)
        logger.info("endpoint '%s' is gone", self.record.name)
        self._is_gone = True
        self._settled.set()

    async def _become(self, status: Status, reason: str = "") -> None:
        """Go to a state, and keep it; requests go by then where the table says."""
        await self._dependencies.table.settled()
        self.record.status = status
        self.record.reason = reason
        self.record.modified = time.time()
        logger.info("endpoint '%s' is %s", self.record.name, status)
        backoff = self._dependencies.settings.backoff_s
        is_kept = False
        while not is_kept:
            try:
                await self._keep(self.record)
                is_kept = True
            except ApiError as error:
                logger.error("endpoint '%s': %s", self.record.name, error.message)
            if self.is_settled:
                self._settled.set()
            if not is_kept:
                await asyncio.sleep(backoff)

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of its."""
        fleets = [fleet for fleet in (self._current, self._pending, *self._leaving) if fleet is not None]
        return any(fleet.ended(instance_id, reason) for fleet in fleets)

    def instances(self) -> Mapping[str, int]:
        """Variant → how many instances take requests now."""
        return {} if self._current is None else self._current.instances()

    def waiting(self) -> Mapping[str, str]:
        """Variant → why there is no room yet for one of its instances, of the fleet that is being brought up first."""
        fleets = [fleet for fleet in (self._current, self._pending) if fleet is not None]
        return {name: why for fleet in fleets for name, why in fleet.waiting().items()}

    async def stop(self) -> None:
        """Do nothing more. The instances run on until the substrate ends them."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self._dependencies.table.withdraw(self.record.id)
        fleets = [fleet for fleet in (self._current, self._pending, *self._leaving) if fleet is not None]
        await asyncio.gather(*(fleet.forget() for fleet in fleets))
