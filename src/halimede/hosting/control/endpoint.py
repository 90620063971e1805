"""One endpoint: what is there is brought to what its record asks for; each step is kept before it is done.

Creating ──► InService | Failed
InService ──► Updating ──► InService                  a pending fleet takes the place of the current one (`Rollout`)
              Updating ──► RollingBack ──► InService  it does not come up, or an alarm goes off: the current one stays
                           RollingBack ──► UpdateRollbackFailed  a rolling update, of which parts of both are left
SystemUpdating ──► InService                          the host was started again
any ──► Deleting ──► gone
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from halimede.core.backoff import Backoff
from halimede.core.tasks import Tasks
from halimede.hosting.control.deployments.progress import BACK, Progress, Stage
from halimede.hosting.control.fleets import Fleets
from halimede.hosting.control.records import SETTLED, EndpointRecord, Status
from halimede.hosting.control.rollout import Rollout
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
        fleets: its instances.
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
        self.fleets = Fleets(dependencies, record, adopted or {})
        self._dependencies = dependencies
        self._keep = keep
        self._on_gone = on_gone
        self._tasks = Tasks()
        self._work_task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._settled = asyncio.Event()
        self._is_gone = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being done to it."""
        return self.record.status in SETTLED

    async def settled(self, timeout_s: float) -> None:
        """Return once nothing is being done to it any more, or it waits for room, or is gone, or the time is over.

        An update that watches alarms, or waits before it ends the old fleet, is not waited for either.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not self._settled.is_set() and not self._is_held_up() and loop.time() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, loop.time() + _LOOK_S)):
                    await self._settled.wait()

    def _is_held_up(self) -> bool:
        """Whether it may take long until something happens."""
        progress = self.record.progress
        is_waiting = progress is not None and progress.until > self._dependencies.now()
        return is_waiting or bool(self.fleets.waiting())

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
        return self._tasks.start(f"working on endpoint '{self.record.name}'", work)

    async def _work(self, earlier: set[asyncio.Task[None]]) -> None:
        given_up = [task for task in earlier if task.cancelling()]
        if given_up:
            await asyncio.wait(given_up)
        settings = self._dependencies.settings
        backoff = Backoff(settings.backoff_s, settings.longest_backoff_s)
        while True:
            try:
                await self._step()
                break
            except Exception:  # of one endpoint, and the log has what nobody foresaw
                logger.exception("endpoint '%s' is stuck in state %s", self.record.name, self.record.status)
            await backoff.pause()
        if self.is_settled:
            self._settled.set()

    async def _step(self) -> None:
        record = self.record
        if record.status is Status.DELETING:
            await self._delete()
        elif self.is_settled:
            return
        elif record.current is None:
            await self._create()
        elif record.pending is not None:
            await self._update()
        else:
            await self._apply()

    async def _create(self) -> None:
        """Bring up the first fleet."""
        record, fleets = self.record, self.fleets
        assert record.pending is not None
        try:
            if fleets.pending is None:
                fleets.pending = fleets.make(record.pending)
            await fleets.pending.start(fleets.adopted)
        except Exception as error:
            if isinstance(error, ApiError):
                reason = error.message
                logger.warning("endpoint '%s': %s", record.name, reason)
            else:  # of one endpoint, and the log has what nobody foresaw
                reason = "internal error; the log of the host has the details"
                logger.error("endpoint '%s' cannot be brought up", record.name, exc_info=error)
            await fleets.retire_pending()
            await self._become(Status.FAILED, reason)
            return
        record.current, record.pending = record.pending, None
        fleets.promote()
        await self._become(Status.IN_SERVICE)

    async def _update(self) -> None:
        """Let the pending fleet take the place of the current one, as the endpoint's deployment policy says."""
        record, fleets = self.record, self.fleets
        if record.progress is None:  # an earlier version kept none
            record.progress = record.plan.begin(self._dependencies.now())
        ended = await Rollout(self._dependencies, record, fleets, self._proceed).run()
        current, pending = record.current, record.pending
        assert current is not None
        assert pending is not None
        if ended.stage is Stage.DONE:
            record.current, record.pending, record.mixed, record.progress = pending, None, None, None
            before = fleets.promote()
            try:
                await self._become(Status.IN_SERVICE)
            finally:
                for fleet in before:
                    fleets.retire_soon(fleet)
            return
        reason = ended.reason
        logger.warning("endpoint '%s': %s", record.name, reason)
        if ended.stage is Stage.STUCK:
            current.counts = {name: max(1, count) for name, count in fleets.instances().items()}
            left = fleets.pending_instances()
            if any(left.values()):
                record.mixed = replace(pending, counts=dict(left))
                reason = f"{reason} ({sum(left.values())} instances of {pending.config_name} still serve)"
                fleets.keep_pending(record.mixed)
            else:
                await fleets.retire_pending()
        record.pending = record.progress = None
        fleets.publish()
        await self._become(record.settled_status, reason)

    async def _proceed(self, progress: Progress) -> None:
        """Keep how far the update has come."""
        self.record.progress = progress
        status = Status.ROLLING_BACK if progress.stage in BACK else Status.UPDATING
        await self._become(status, progress.reason, str(progress))

    async def _apply(self) -> None:
        """Have the fleet that serves be as its record says: again after a restart, or with other weights and counts."""
        record, fleets = self.record, self.fleets
        assert record.current is not None
        reason = record.reason
        if fleets.current is None:
            reason = await self._resume() or reason
        assert fleets.current is not None
        fleets.current.record = record.current
        now = fleets.current.counts()
        if any(count > now[name] for name, count in record.current.counts.items()):
            await fleets.room()
        try:
            await fleets.current.apply()
        except ApiError as error:
            record.current.counts = fleets.current.counts()
            reason = error.message
        await self._become(record.settled_status, reason)

    async def _resume(self) -> str:
        """Bring up again what served before the host was started: "", or what is wrong with it.

        What does not come up is tried again and again: there was a time when it did.
        """
        record, fleets = self.record, self.fleets
        assert record.current is not None
        work = [fleets.make(record.current)]
        fleets.current = work[0]
        if record.mixed is not None:
            fleets.mixed = fleets.make(record.mixed)
            work.append(fleets.mixed)
        fleets.publish()
        outcomes = await asyncio.gather(
            *(fleet.start(fleets.adopted, keep_trying=True) for fleet in work), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError):
                raise outcome
        return next((outcome.message for outcome in outcomes if isinstance(outcome, ApiError)), "")

    async def _delete(self) -> None:
        record, fleets = self.record, self.fleets
        await fleets.retire()
        grace = self._dependencies.settings.grace_s
        adopted = [each for each in fleets.adopted.values() if each.request.endpoint_id == record.id]
        await asyncio.gather(
            *(self._dependencies.substrate.terminate(each.request.id, grace) for each in adopted)
        )
        for kept in record.fleets:
            await asyncio.to_thread(shutil.rmtree, self._dependencies.directory / kept.id, ignore_errors=True)
        await self._on_gone(self)
        logger.info("endpoint '%s' is gone", record.name)
        self._is_gone = True
        self._settled.set()

    async def _become(self, status: Status, reason: str = "", details: str = "") -> None:
        """Go to a state, and keep it; requests go by then where the table says. The log gets the details."""
        await self._dependencies.table.settled()
        self.record.status = status
        self.record.reason = reason
        self.record.modified = time.time()
        logger.info("endpoint '%s' is %s%s", self.record.name, status, details and f": {details}")
        settings = self._dependencies.settings
        backoff = Backoff(settings.backoff_s, settings.longest_backoff_s)
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
                await backoff.pause()

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of its."""
        return self.fleets.ended(instance_id, reason)

    async def stop(self) -> None:
        """Do nothing more. The instances run on until the substrate ends them."""
        await self._tasks.close()
        self._dependencies.table.withdraw(self.record.id)
        await self.fleets.stop()
