"""Makes executions of schedules when they are due, and runs them one after the other.

An execution is written down before it is begun, so that a host that was killed runs it again. What was due while the
host did not run is left out, as SageMaker leaves out what it missed.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Protocol

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.monitoring.captures import EndpointConfigs, capture_of
from halimede.hosting.monitoring.job import Result
from halimede.hosting.monitoring.records import (
    ALERT_OK,
    ENDED,
    IN_ALERT,
    Execution,
    ExecutionStatus,
    Job,
    Schedule,
    ScheduleStatus,
)
from halimede.hosting.monitoring.state import MonitoringState, Name
from halimede.hosting.monitoring.timetable import Seconds, Timetable

logger = logging.getLogger("halimede")

SETTLE_S = 90.0
"""So long after its time an execution begins: captured data are in their bucket by then."""

_LATE_S = 600.0
"""What was due so long ago, in seconds of AWS's, is left out."""

_ATTEMPTS = 3
_KEEP_AGAIN_S = 1.0

_JUDGED = (ExecutionStatus.COMPLETED, ExecutionStatus.WITH_VIOLATIONS, ExecutionStatus.FAILED)
_ALERTS = 200
"""So many changes of an alert are kept."""


class Runner(Protocol):
    """Runs jobs."""

    async def run(self, execution: Execution) -> Result:
        """Run one to its end; if this is cancelled, the job is ended.

        Raises:
            ApiError: it fails, for this reason.
        """


def job_of(schedule: Schedule, state: MonitoringState) -> Job | None:
    """What a schedule's executions do; None if its job definition is gone."""
    inline = schedule.config.get("MonitoringJobDefinition")
    if inline is not None:
        return Job.of_inline(inline)
    definition = state.definitions.get((schedule.scope, schedule.definition_name))
    return None if definition is None else Job.of_definition(definition.request)


class Scheduler:
    """Lives on the event loop. Whoever calls `tick` and `stop_execution` holds `MonitoringState.changing`."""

    def __init__(
        self,
        state: MonitoringState,
        configs: EndpointConfigs,
        runner: Runner,
        done: Callable[[Execution, Result], None],
        seconds: Seconds,
        now: Callable[[], float],
    ) -> None:
        """Nothing runs before the first `tick`.

        Args:
            state: schedules and executions.
            configs: endpoints.
            runner: runs jobs.
            done: told what came out of a job.
            seconds: what a time of AWS's takes here.
            now: the time, in seconds since 1970.
        """
        self._state = state
        self._configs = configs
        self._runner = runner
        self._done = done
        self._seconds = seconds
        self._now = now
        self._due: dict[Name, float | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._running: Name | None = None

    async def recover(self) -> None:
        """Deal with executions that were cut off when the host ended."""
        now = self._now()
        for execution in list(self._state.executions.values()):
            if execution.status is ExecutionStatus.STOPPING:
                execution.move(ExecutionStatus.STOPPED, now)
            elif execution.status is not ExecutionStatus.IN_PROGRESS:
                continue
            elif execution.attempts >= _ATTEMPTS:
                execution.move(ExecutionStatus.FAILED, now)
                execution.reason = f"The host ended {_ATTEMPTS} times while the job ran"
            else:
                execution.move(ExecutionStatus.PENDING, now)
            await self._state.put_execution(execution)

    def forget(self, schedule: Schedule) -> None:
        """A schedule has changed, or is gone."""
        self._due.pop((schedule.scope, schedule.name), None)

    async def tick(self) -> None:
        """Make executions of what is due, and begin the next one."""
        now = self._now()
        for name, schedule in list(self._state.schedules.items()):
            if schedule.status is ScheduleStatus.SCHEDULED:
                await self._look_at(name, schedule, now)
            else:
                self._due.pop(name, None)
        if self._task is None:
            waiting = [
                each
                for each in self._state.executions.values()
                if each.status is ExecutionStatus.PENDING and now >= self._begins(each)
            ]
            if waiting:
                await self._begin(min(waiting, key=lambda each: (each.scheduled, each.name)))

    def _begins(self, execution: Execution) -> float:
        schedule = self._state.schedules.get((execution.scope, execution.schedule))
        config = {} if schedule is None else schedule.config.get("ScheduleConfig") or {}
        is_now = config.get("ScheduleExpression", "").strip() == "NOW"
        return execution.scheduled + (0.0 if is_now else SETTLE_S)

    async def _look_at(self, name: Name, schedule: Schedule, now: float) -> None:
        job = job_of(schedule, self._state)
        if job is None:
            reason = f"The job definition {schedule.definition_name} does not exist any more"
            failed = replace(schedule, status=ScheduleStatus.FAILED, modified=now, reason=reason)
            await self._state.put_schedule(failed)
            return
        timetable = Timetable.of(schedule.config.get("ScheduleConfig") or {}, job.source)
        if timetable.cron is None:
            # once: an execution says that it has been
            executions = self._state.executions_of(*name)
            if not any(each.scheduled >= schedule.started for each in executions):
                await self._make(schedule, job, timetable, schedule.started)
            return
        if name not in self._due:
            self._due[name] = timetable.next_after(
                max(now - self._seconds(_LATE_S), schedule.started, self._latest(name)),
                schedule.started,
                self._seconds,
            )
        due = self._due[name]
        if due is not None and due <= now:
            self._due[name] = timetable.next_after(due, schedule.started, self._seconds)
            if now - due <= self._seconds(_LATE_S):
                await self._make(schedule, job, timetable, due)

    def _latest(self, name: Name) -> float:
        """When the latest execution of a schedule was to run."""
        return max((each.scheduled for each in self._state.executions_of(*name)), default=0.0)

    async def _make(self, schedule: Schedule, job: Job, timetable: Timetable, due: float) -> None:
        now = self._now()
        moment = datetime.fromtimestamp(due, UTC)
        begin, end = timetable.window(due, self._seconds)
        name = f"model-monitoring-{moment:%Y%m%d%H%M}-{secrets.token_hex(12)}"
        reason = source = ""
        try:
            capture = capture_of(self._configs, EndpointId(*schedule.scope, job.endpoint))
            source = f"{capture.destination.rstrip('/')}/{capture.endpoint}"
        except ApiError as error:
            reason = error.message
        hour = f"{moment:%Y/%m/%d/%H}"
        if self._seconds(1.0) != 1.0:
            hour += f"/{moment:%M-%S}"  # several an hour
        output = f"{job.output.rstrip('/')}/{job.endpoint}/{schedule.name}/{hour}"
        execution = Execution(
            schedule.scope,
            name,
            schedule.name,
            schedule.definition_name,
            asdict(job),
            due,
            begin,
            end,
            source,
            output,
            now,
            now,
        )
        if reason:
            execution.move(ExecutionStatus.FAILED, now)
            execution.reason = reason
        await self._state.put_execution(execution)

    async def _begin(self, execution: Execution) -> None:
        now = self._now()
        begun = replace(execution, attempts=execution.attempts + 1, started=now)
        begun.move(ExecutionStatus.IN_PROGRESS, now)
        await self._state.put_execution(begun)
        self._running = begun.scope, begun.name
        self._task = tasks.start(f"monitoring job {begun.name}", self._run(begun))

    async def _run(self, execution: Execution) -> None:
        try:
            result = await self._runner.run(execution)
        except ApiError as error:
            result = Result(error.message)
        except Exception as error:  # a job is not what the host stands or falls with
            logger.exception("monitoring job %s failed", execution.name)
            result = Result(f"The host could not run the job: {error!r}")
        while True:
            if await self._is_kept(execution, result):
                return
            await asyncio.sleep(_KEEP_AGAIN_S)

    async def _is_kept(self, execution: Execution, result: Result) -> bool:
        """Whether it could be written down what came out of a job, or nobody asks for that any more."""
        async with self._state.changing:
            try:
                known = self._state.executions.get((execution.scope, execution.name))
                if known is execution:
                    known = await self._end(execution, result)
                if known is not None:
                    await self._look_for_alert(known)
            except ApiError as error:
                logger.error("monitoring job %s: %s", execution.name, error.message)
                return False
            except Exception:
                logger.exception("monitoring job %s is left until the host is started again", execution.name)
            self._task = self._running = None
            return True

    async def _end(self, execution: Execution, result: Result) -> Execution:
        """Keep what came out of a job: its execution, which has ended."""
        now = self._now()
        ended = replace(execution, ended=now)
        if result.failure:
            ended.move(ExecutionStatus.FAILED, now)
            ended.reason = result.failure
            logger.warning(
                "monitoring of %s by %s failed: %s", ended.endpoint.name, ended.schedule, result.failure
            )
        elif result.violations:
            ended.move(ExecutionStatus.WITH_VIOLATIONS, now)
            ended.message = (
                f"CompletedWithViolations: Job completed successfully with {result.violations} violations."
            )
        else:
            ended.move(ExecutionStatus.COMPLETED, now)
            ended.message = "Completed: Job completed successfully with no violations."
        await self._state.put_execution(ended)
        self._done(ended, result)
        return ended

    async def _look_for_alert(self, execution: Execution) -> None:
        """Keep what the schedule's latest executions make of its alert."""
        schedule = self._state.schedules.get((execution.scope, execution.schedule))
        if schedule is None:
            return
        every = self._state.executions_of(schedule.scope, schedule.name)
        latest = [each.status for each in every if each.status in _JUDGED][-schedule.period :]
        is_bad = sum(status is not ExecutionStatus.COMPLETED for status in latest) >= schedule.datapoints
        state = IN_ALERT if is_bad else ALERT_OK
        if state != schedule.alert:
            alerts = [*schedule.alerts, (execution.modified, state)][-_ALERTS:]
            await self._state.put_schedule(replace(schedule, alerts=alerts))

    async def stop_execution(self, execution: Execution) -> None:
        """End an execution, if it has not ended."""
        if execution.status in ENDED:
            return
        now = self._now()
        stopped = replace(execution, ended=now)
        if execution.status is ExecutionStatus.IN_PROGRESS:
            stopped.move(ExecutionStatus.STOPPING, now)
            await self._state.put_execution(stopped)
            if self._running == (execution.scope, execution.name):
                await self.cancel()
            stopped = replace(stopped)
        stopped.move(ExecutionStatus.STOPPED, now)
        await self._state.put_execution(stopped)

    async def cancel(self) -> None:
        """End the job that runs; its execution is as it was."""
        task, self._task, self._running = self._task, None, None
        await tasks.cancel(task)

    async def idle(self) -> None:
        """Return once no job runs."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
