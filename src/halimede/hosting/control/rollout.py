"""An update that is under way: brings fleets and shares to what its progress says, and goes on when that is so.

Each progress is kept before it is acted on, but for one thing: a rollback takes the new fleet's requests away first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from math import ceil
from typing import Any

from halimede.core import tasks
from halimede.core.tasks import Tasks
from halimede.hosting.control.deployments.plan import Plan
from halimede.hosting.control.deployments.progress import BACK, ENDED, WAITING, Progress, Stage
from halimede.hosting.control.fleet import Fleet
from halimede.hosting.control.fleets import Fleets
from halimede.hosting.control.records import EndpointRecord
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.states import AlarmState

logger = logging.getLogger("halimede")

_NO_ROOM = ("InsufficientInstanceCapacity", "ResourceLimitExceeded")
"""Codes of errors that fewer instances elsewhere would have prevented."""


class Rollout:
    """An update of an endpoint. Lives on the event loop."""

    def __init__(
        self,
        dependencies: Dependencies,
        record: EndpointRecord,
        fleets: Fleets,
        keep: Callable[[Progress], Awaitable[None]],
    ) -> None:
        """An update that goes on where the record's progress says.

        Args:
            dependencies: what it needs of the host.
            record: the endpoint's, with a current fleet, a pending one, and a progress.
            fleets: the endpoint's, of which the current one has been started.
            keep: puts a progress into the record, and writes it to disk.
        """
        self._dependencies = dependencies
        self._record = record
        self._fleets = fleets
        self._keep = keep
        self._plan: Plan = record.plan
        self._is_resuming = False

    async def run(self) -> Progress:
        """Go on until the update has ended: as what. It may be cancelled, and another one may go on."""
        progress = self._record.progress
        assert progress is not None
        if self._fleets.current is None:
            progress = await self._resume(progress)
        while progress.stage not in ENDED:
            if progress is not self._record.progress:
                if progress.stage in BACK:
                    self._fleets.publish(progress.share)
                await self._keep(progress)
            progress = await self._next(progress)
        return progress

    async def _next(self, progress: Progress) -> Progress:
        """Do what a stage is about: what follows."""
        now = self._dependencies.now
        try:
            await self._do(progress)
        except ApiError as error:
            return self._plan.failed(progress, error.message, now())
        except Exception:  # of one endpoint, and the log has what nobody foresaw
            if progress.stage in BACK:
                raise  # it is tried again
            logger.exception("endpoint '%s': the update cannot go on", self._record.name)
            reason = "internal error; the log of the host has the details"
            return self._plan.failed(progress, reason, now())
        if progress.stage in WAITING:
            return self._plan.elapsed(progress, now())
        return self._plan.arrived(progress, now())

    async def _do(self, progress: Progress) -> None:
        match progress.stage:
            case Stage.PROVISIONING:
                await self._watched(progress, self._provision(progress))
                # one may have ended, and the next one be coming up
                await self._until(progress, lambda: self._fleets.pending_instances() == progress.new)
            case Stage.BAKING | Stage.TERMINATION_WAIT:
                self._fleets.publish(progress.share)
                await self._dependencies.table.settled()
                clock = asyncio.get_running_loop().time  # nobody sets this one
                end = clock() + self._plan.left_s(progress, self._dependencies.now())
                await self._until(progress, lambda: clock() >= end)
            case Stage.SHRINKING:
                await self._watched(progress, self._current.scale(progress.old))
            case Stage.GROWING_BACK:
                await self._grow_back(progress)
            case Stage.SHRINKING_BACK:
                self._fleets.publish(progress.share)
                await self._dependencies.table.settled()
                await self._shrink(progress.new)

    @property
    def _current(self) -> Fleet:
        fleet = self._fleets.current
        assert fleet is not None
        return fleet

    async def _resume(self, progress: Progress) -> Progress:
        """After a restart: have the fleets again as they were.

        What has served before is started again and again if it does not come up, but for what is to end.
        """
        fleets, record = self._fleets, self._record
        assert record.current is not None
        assert record.pending is not None
        fleets.current = fleets.make(record.current)
        fleets.mixed = fleets.make(record.mixed) if record.mixed is not None else None
        is_back = progress.stage in BACK
        old, new = progress.old, progress.new
        if is_back:
            running = fleets.adopted_counts(record.current)
            old = {name: max(1, min(count, running[name])) for name, count in old.items()}
            running = fleets.adopted_counts(record.pending)
            new = {name: min(count, running[name]) for name, count in new.items()}
        if is_back or progress.share:
            fleets.pending = fleets.make(record.pending)
        fleets.publish(progress.share)
        what = f"starting again what served at endpoint '{self._record.name}' before its update"
        before = tasks.start(what, self._start_old_again(old))
        self._is_resuming = True  # until then none of its instances may answer
        try:
            if fleets.pending is not None:
                work = fleets.pending.start(fleets.adopted, new, keep_trying=True)
                await (work if is_back else self._watched(progress, work))
        except ApiError as error:
            if not is_back:
                progress = self._plan.failed(progress, error.message, self._dependencies.now())
                fleets.publish(progress.share)
        except asyncio.CancelledError:
            before.cancel()
            raise
        finally:
            self._is_resuming = False
            await asyncio.wait([before])
        return self._plan.restarted(progress, self._dependencies.now())

    async def _start_old_again(self, counts: Mapping[str, int]) -> None:
        """Start again what served before the update; what does not come up is tried again and again."""
        fleets = self._fleets
        work = [self._current.start(fleets.adopted, counts, keep_trying=True)]
        if fleets.mixed is not None:
            work.append(fleets.mixed.start(fleets.adopted, keep_trying=True))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.warning("endpoint '%s': %s", self._record.name, outcome)

    # forward

    async def _provision(self, progress: Progress) -> None:
        """Have the instances of the new fleet that the progress says, and all of them answer."""
        fleets, pending = self._fleets, self._record.pending
        assert pending is not None
        await fleets.room()
        if fleets.pending is None:
            fleets.pending = fleets.make(pending)
        await fleets.pending.start(fleets.adopted, progress.new)

    async def _until(self, progress: Progress, condition: Callable[[], bool]) -> None:
        """Return once something is so.

        Raises:
            ApiError: something has gone wrong before.
        """
        while True:
            self._check(progress)
            if condition():
                return
            await asyncio.sleep(self._dependencies.settings.look_s)

    async def _watched(self, progress: Progress, work: Coroutine[Any, Any, None]) -> None:
        """Do some work of a stage, unless something goes wrong meanwhile.

        Raises:
            ApiError: something has.
        """
        async with Tasks() as working:
            task = working.submit(work)
            while True:
                self._check(progress)
                if task.done():
                    return task.result()
                await asyncio.wait([task], timeout=self._dependencies.settings.look_s)

    def _check(self, progress: Progress) -> None:
        """Refuse to go on if something has gone wrong.

        Raises:
            ApiError: something has.
        """
        trouble = self._trouble(progress)
        if trouble:
            raise ApiError("InternalFailure", f"The deployment was rolled back: {trouble}.")

    def _trouble(self, progress: Progress) -> str:
        """Why the update is to be rolled back; "" if it may go on."""
        for name in self._plan.policy.alarms:
            alarm = self._dependencies.alarm(self._record.id.scope, name)
            if alarm is None:
                return f"the CloudWatch alarm '{name}' does not exist any more"
            if alarm.state is AlarmState.ALARM or alarm.alarmed >= progress.began:
                return f"the CloudWatch alarm '{name}' went to ALARM ({alarm.reason.rstrip('.')})"
        if self._plan.is_overdue(progress, self._dependencies.now()):
            limit = self._plan.policy.timeout_s
            return f"it took longer than MaximumExecutionTimeoutInSeconds ({limit} s)"
        fleet = self._fleets.pending
        if fleet is None or self._is_resuming:
            return ""
        gone = sorted(
            name for name, route in fleet.routes().items() if progress.new[name] and not route.targets
        )
        if gone and progress.share:
            return f"no instance of variant '{gone[0]}' of the new fleet answers"
        if fleet.lost > self._dependencies.settings.starts:
            return f"{fleet.lost} instances of the new fleet have ended after they had come up"
        return ""

    # back

    async def _grow_back(self, progress: Progress) -> None:
        """Have the instances of the old fleet that the progress says.

        They are started before instances of the new fleet end, unless there is no room for both.

        Raises:
            ApiError: they do not come up.
        """
        before = self._current.instances()
        try:
            try:
                await self._unless_waiting(self._current.scale(progress.old))
            except ApiError as error:
                if error.code not in _NO_ROOM or not any(self._fleets.pending_instances().values()):
                    raise
                await self._make_room(sum(progress.old.values()) - sum(before.values()), progress.share)
                await self._current.scale(progress.old)
                await self._current.ready()
        except ApiError:
            await self._current.scale(
                {name: min(max(1, before[name]), count) for name, count in progress.old.items()}
            )
            raise

    async def _make_room(self, count: int, share: float) -> None:
        """End so many instances of the new fleet, and with the last one its share."""
        counts = self._fleets.pending_instances()
        total = sum(counts.values())
        new = {name: max(0, each - ceil(count * each / total)) for name, each in counts.items()}
        self._fleets.publish(share if any(new.values()) else 0.0)
        await self._dependencies.table.settled()
        await self._shrink(new)

    async def _unless_waiting(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work, unless it waits for room.

        Raises:
            ApiError: it does.
        """
        async with Tasks() as working:
            task = working.submit(work)
            while not task.done():
                await asyncio.wait([task], timeout=self._dependencies.settings.look_s)
                if waiting := self._current.waiting():
                    raise ApiError(_NO_ROOM[0], next(iter(waiting.values())))
            task.result()

    async def _shrink(self, new: Mapping[str, int]) -> None:
        """Have so many instances of the new fleet, at most."""
        fleet = self._fleets.pending
        if fleet is None or not any(new.values()):
            await self._fleets.retire_pending()
        else:
            await fleet.scale({name: min(count, new[name]) for name, count in fleet.counts().items()})
