"""One transform job: from its record to its end. Each step is kept before the next one.

After a restart of the host the job goes on with the objects that are not done.
"""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from halimede.core import tasks
from halimede.core.backoff import Backoff
from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.transform.dependencies import JobDependencies
from halimede.hosting.transform.failures import TransformError
from halimede.hosting.transform.job_record import JobRecord, Status
from halimede.hosting.transform.lanes import Lanes
from halimede.hosting.transform.progress import Counts, Progress
from halimede.hosting.transform.run import Run
from halimede.hosting.transform.spec import TransformSpec

logger = logging.getLogger("halimede")

_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0
_PATIENCE_S = 900.0
"""How long a job may be without any instance."""

_MAX_REASON = 1024

_KINDS = {"ServiceUnavailable": "AlgorithmError", "ResourceLimitExceeded": "CapacityError"}
"""Whose fault it is that instances do not come up, by the code of the error; ``ClientError`` for others."""


class Job:
    """One job. Lives on the event loop.

    Attributes:
        record: what is known of it.
    """

    def __init__(
        self, dependencies: JobDependencies, record: JobRecord, adopted: Sequence[RunningInstance] = ()
    ) -> None:
        """A job on which nothing is done before `work` is called.

        Args:
            dependencies: what it needs of the host.
            record: what is known of it.
            adopted: its instances that run already.
        """
        self.record = record
        self._dependencies = dependencies
        progress = dependencies.state.progress.get((record.scope, record.name)) or Progress()
        spec = TransformSpec.of(record.request)
        lanes = Lanes(spec.concurrent, _PATIENCE_S)
        self._fleet = dependencies.make_fleet(record, spec, lanes, adopted)
        self._run = Run(dependencies, record, spec, lanes, self._fleet, progress)
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # what others ask of it

    async def settled(self, timeout_s: float) -> None:
        """Return once nothing is being done any more, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()

    def release(self) -> None:
        """Let go on those that wait until it is settled."""
        self._settled.set()

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of its."""
        if not self._fleet.ended(instance_id, reason):
            return False
        self._tell(f"instance {instance_id} ended: {reason}")
        return True

    def counts(self) -> Counts:
        """What has been done."""
        return self._run.counts()

    def _tell(self, line: str) -> None:
        self._dependencies.tell(self.record, line)

    # coming and going

    def work(self) -> None:
        """Begin, or go on."""
        if self.record.is_settled:
            return
        self._task = tasks.forever(f"working on transform job '{self.record.name}'", self._work)

    async def stop(self) -> None:
        """Give up what is under way; the job is stopped when its instances have ended. What is written stays.

        Raises:
            ApiError: that cannot be kept; the job goes on.
        """
        record = self.record
        if record.status is not Status.IN_PROGRESS or record.outcome:
            return
        before = record.modified
        record.status, record.modified = Status.STOPPING, self._dependencies.now()
        try:
            await self._dependencies.state.put(record)
        except ApiError:
            record.status, record.modified = Status.IN_PROGRESS, before
            raise
        await self._give_up()
        self.work()

    async def forget(self) -> None:
        """Do nothing more; the instances run on."""
        await self._give_up()
        await self._fleet.forget()

    async def _give_up(self) -> None:
        await tasks.cancel(self._task)

    async def _work(self) -> None:
        record = self.record
        if record.status is Status.IN_PROGRESS and not record.outcome:
            outcome, reason = Status.COMPLETED, ""
            try:
                await self._run.transform()
            except TransformError as error:
                outcome, reason = Status.FAILED, error.reason
            except ApiError as error:
                outcome, reason = Status.FAILED, f"{_KINDS.get(error.code, 'ClientError')}: {error.message}"
            except Exception as error:  # of one job, and the log has what nobody foresaw
                logger.exception("transform job '%s' failed", record.name)
                outcome, reason = Status.FAILED, f"InternalServerError: the host failed: {error}"
            record.outcome, record.reason = str(outcome), reason[:_MAX_REASON]
            await self._keep(record)
        await self._end()

    async def _end(self) -> None:
        """End the instances, and settle."""
        record = self.record
        backoff = Backoff(_BACKOFF_S, _LONGEST_BACKOFF_S)
        while True:
            try:
                await self._fleet.retire()
                break
            except Exception:  # of one job; its instances have to end nonetheless
                logger.exception("the instances of transform job '%s' do not end", record.name)
            await backoff.pause()
        await asyncio.to_thread(
            shutil.rmtree, self._dependencies.directory / record.fleet, ignore_errors=True
        )
        self._run.report()
        status = Status(record.outcome) if record.outcome else Status.STOPPED
        # nobody sees it settled before that is kept
        record = replace(record, status=status, ended=self._dependencies.now())
        await self._keep(record)
        self.record = record
        outcome = f"{record.status}: {record.reason}" if record.reason else str(record.status)
        self._tell(outcome)
        logger.info("transform job '%s' is %s", record.name, outcome)
        self._settled.set()

    async def _keep(self, record: JobRecord) -> None:
        """Write a record down, however long that takes."""
        record.modified = self._dependencies.now()
        backoff = Backoff(_BACKOFF_S, _LONGEST_BACKOFF_S)
        while True:
            try:
                await self._dependencies.state.put(record)
                return
            except ApiError as error:
                logger.error("transform job '%s': %s", record.name, error.message)
            except Exception:  # of one job, and the log has what nobody foresaw
                logger.exception("transform job '%s' cannot be written down", record.name)
            await backoff.pause()
