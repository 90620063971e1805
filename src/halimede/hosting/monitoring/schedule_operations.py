"""The operations on monitoring schedules."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.control.resources import is_taken, tags_of
from halimede.hosting.errors import invalid
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.monitoring.captures import EndpointConfigs, capture_of
from halimede.hosting.monitoring.definition_operations import WORDS as DEFINITION_WORDS
from halimede.hosting.monitoring.executions import summary_of
from halimede.hosting.monitoring.records import DATA_QUALITY, Definition, Job, Schedule, ScheduleStatus
from halimede.hosting.monitoring.refusals import (
    check_inputs,
    check_output,
    check_scripts,
    check_type,
    missing,
    taken,
)
from halimede.hosting.monitoring.scheduler import Scheduler, job_of
from halimede.hosting.monitoring.state import MonitoringState
from halimede.hosting.monitoring.timetable import Timetable

_WORDS = "monitoring schedule"

Request = Mapping[str, Any]
Answer = dict[str, Any]


class ScheduleOperations:
    """Monitoring schedules."""

    def __init__(
        self,
        state: MonitoringState,
        configs: EndpointConfigs,
        scheduler: Scheduler,
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._configs = configs
        self._scheduler = scheduler
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "CreateMonitoringSchedule": self._create,
            "UpdateMonitoringSchedule": self._update,
            "DescribeMonitoringSchedule": self._describe,
            "ListMonitoringSchedules": self._list,
            "StartMonitoringSchedule": self._start,
            "StopMonitoringSchedule": self._stop,
            "DeleteMonitoringSchedule": self._delete,
        }

    async def _create(self, request: Request, caller: Caller) -> Answer:
        now = self._now()
        config = request["MonitoringScheduleConfig"]
        schedule = Schedule(
            caller.scope, request["MonitoringScheduleName"], config, ScheduleStatus.SCHEDULED, now, now, now
        )
        async with self._state.changing:
            names = (name for scope, name in self._state.schedules if scope == caller.scope)
            if is_taken(schedule.name, names):
                raise taken(_WORDS, schedule.arn)
            self._check(schedule)
            await self._state.add_schedule(schedule, tags_of(request))
        return {"MonitoringScheduleArn": schedule.arn}

    def _check(self, schedule: Schedule) -> None:
        """Refuse a schedule that could not run.

        Raises:
            ApiError: it could not.
        """
        config = schedule.config
        check_type(config.get("MonitoringType"))
        inline, name = config.get("MonitoringJobDefinition"), schedule.definition_name
        if (inline is None) is (not name):
            raise invalid(
                "MonitoringScheduleConfig needs either MonitoringJobDefinitionName or MonitoringJobDefinition"
            )
        if inline is not None:
            check_inputs(inline["MonitoringInputs"][0])
            check_scripts(inline["MonitoringAppSpecification"])
            check_output(inline["MonitoringOutputConfig"]["MonitoringOutputs"][0]["S3Output"]["S3Uri"])
        job = job_of(schedule, self._state)
        if job is None:
            raise missing(DEFINITION_WORDS, Definition(schedule.scope, name, {}, 0.0).arn)
        Timetable.of(config.get("ScheduleConfig") or {}, job.source)
        capture_of(self._configs, EndpointId(*schedule.scope, job.endpoint))

    def _find(self, request: Request, caller: Caller) -> Schedule:
        name = request["MonitoringScheduleName"]
        found = self._state.schedules.get((caller.scope, name))
        if found is None:
            raise missing(_WORDS, caller.scope.arn("monitoring-schedule", name))
        return found

    async def _update(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            found, now = self._find(request, caller), self._now()
            changed = replace(
                found, config=request["MonitoringScheduleConfig"], modified=now, started=now, reason=""
            )
            if changed.status is ScheduleStatus.FAILED:
                changed.status = ScheduleStatus.SCHEDULED
            self._check(changed)
            await self._state.put_schedule(changed)
            self._scheduler.forget(changed)
        return {"MonitoringScheduleArn": changed.arn}

    async def _start(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            found, now = self._find(request, caller), self._now()
            if found.status is not ScheduleStatus.SCHEDULED:
                changed = replace(
                    found, status=ScheduleStatus.SCHEDULED, modified=now, started=now, reason=""
                )
                await self._state.put_schedule(changed)
                self._scheduler.forget(changed)
        return {}

    async def _stop(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            found = self._find(request, caller)
            changed = replace(found, status=ScheduleStatus.STOPPED, modified=self._now())
            await self._state.put_schedule(changed)
        return {}

    async def _delete(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            found = self._find(request, caller)
            await self._state.remove_schedule(found)
            self._scheduler.forget(found)
            for execution in self._state.executions_of(found.scope, found.name):
                await self._scheduler.stop_execution(execution)
        return {}

    # what there is

    def _job(self, schedule: Schedule) -> Job | None:
        return job_of(schedule, self._state)

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        found = self._find(request, caller)
        answer = self._summary(found)
        del answer["MonitoringJobDefinitionName"]
        answer["MonitoringScheduleConfig"] = {"MonitoringType": DATA_QUALITY, **found.config}
        executions = self._state.executions_of(found.scope, found.name)
        if executions:
            answer["LastMonitoringExecutionSummary"] = summary_of(executions[-1])
        if found.reason:
            answer["FailureReason"] = found.reason
        return answer

    def _summary(self, schedule: Schedule) -> Answer:
        job = self._job(schedule)
        return {
            "MonitoringScheduleName": schedule.name,
            "MonitoringScheduleArn": schedule.arn,
            "CreationTime": datetime.fromtimestamp(schedule.created, UTC),
            "LastModifiedTime": datetime.fromtimestamp(schedule.modified, UTC),
            "MonitoringScheduleStatus": str(schedule.status),
            "MonitoringType": DATA_QUALITY,
            "MonitoringJobDefinitionName": schedule.definition_name or None,
            **({} if job is None else {"EndpointName": job.endpoint}),
        }

    async def _list(self, request: Request, caller: Caller) -> Answer:
        entries = []
        for (scope, _), schedule in self._state.schedules.items():
            entry = self._summary(schedule)
            is_wanted = all(
                request.get(member, entry.get(known)) == entry.get(known)
                for member, known in (
                    ("EndpointName", "EndpointName"),
                    ("MonitoringJobDefinitionName", "MonitoringJobDefinitionName"),
                    ("MonitoringTypeEquals", "MonitoringType"),
                )
            )
            if scope == caller.scope and is_wanted:
                entries.append({member: value for member, value in entry.items() if value is not None})
        return page_of(
            entries,
            request,
            "MonitoringScheduleName",
            "MonitoringScheduleSummaries",
            "MonitoringScheduleStatus",
        )
