"""Monitoring of endpoints' data: all of it, put together."""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.each_second import EachSecond
from halimede.hosting.identity import Caller
from halimede.hosting.metering.store import MetricStores
from halimede.hosting.monitoring.alert_operations import AlertOperations
from halimede.hosting.monitoring.captures import EndpointConfigs
from halimede.hosting.monitoring.definition_operations import DefinitionOperations
from halimede.hosting.monitoring.executions import ExecutionOperations
from halimede.hosting.monitoring.job import Result
from halimede.hosting.monitoring.metrics import publish
from halimede.hosting.monitoring.records import Execution
from halimede.hosting.monitoring.runner import JobRunner
from halimede.hosting.monitoring.schedule_operations import ScheduleOperations
from halimede.hosting.monitoring.scheduler import Runner, Scheduler, job_of
from halimede.hosting.monitoring.state import MonitoringState
from halimede.hosting.monitoring.tags import tag_operations
from halimede.hosting.monitoring.timetable import Seconds
from halimede.hosting.store.objects import Objects

logger = logging.getLogger("halimede")


def _same(seconds: float) -> float:
    """As long as AWS's."""
    return seconds


class Monitoring:
    """Monitors endpoints. Lives on the event loop."""

    def __init__(
        self,
        directory: Path,
        configs: EndpointConfigs,
        objects: Callable[[str], Objects],
        stores: MetricStores,
        seconds: Seconds = _same,
        now: Callable[[], float] = time.time,
        runner: Runner | None = None,
    ) -> None:
        """Nothing is monitored before `start`.

        Args:
            directory: the host's; ``monitoring.db`` is there, logs below ``logs`` and files of jobs below
                ``monitoring``.
            configs: the endpoints that may be monitored.
            objects: the objects of an account.
            stores: all metrics.
            seconds: what a time of AWS's takes here.
            now: the time, in seconds since 1970.
            runner: runs jobs; by default each in a process of its own.
        """
        self._work = directory / "monitoring"
        self._state = MonitoringState(directory / "monitoring.db")
        self._stores = stores
        self._now = now
        runner = runner or JobRunner(self._work, directory / "logs", configs, objects)
        self._scheduler = Scheduler(self._state, configs, runner, self._done, seconds, now)
        self._definitions = DefinitionOperations(self._state, now)
        self._schedules = ScheduleOperations(self._state, configs, self._scheduler, now)
        self._alerts = AlertOperations(self._state, now)
        self._executions = ExecutionOperations(self._state, self._scheduler.stop_execution)
        self._ticking = EachSecond("monitoring", self.tick)

    def operations(self, others: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """SageMaker's operations, by name: `others`, and those on job definitions, schedules and executions."""
        return {
            **others,
            **self._definitions.operations(),
            **self._schedules.operations(),
            **self._executions.operations(),
            **self._alerts.operations(),
            **tag_operations(self._state, others),
        }

    def about(self, _: str, request: Mapping[str, Any], caller: Caller) -> Collection[str]:
        """The endpoints of the job definitions, schedules and executions that a request names."""
        state, scope, arn = self._state, caller.scope, request.get("ResourceArn")
        definitions = {
            request.get("JobDefinitionName"),
            request.get("MonitoringJobDefinitionName"),
            request.get("MonitoringScheduleConfig", {}).get("MonitoringJobDefinitionName"),
        }
        found = {
            each.endpoint
            for each in state.definitions.values()
            if each.scope == scope and (each.name in definitions or each.arn == arn)
        }
        for each in state.schedules.values():
            if each.scope == scope and (
                each.name == request.get("MonitoringScheduleName") or each.arn == arn
            ):
                job = job_of(each, state)
                found |= set() if job is None else {job.endpoint}
        execution = state.executions.get((scope, request.get("ProcessingJobName", "")))
        return found if execution is None else {*found, execution.endpoint.name}

    async def open(self) -> None:
        """Read what was there before; what was cut off will be run again.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._state.open()
        await asyncio.to_thread(shutil.rmtree, self._work, ignore_errors=True)
        await self._scheduler.recover()

    async def start(self) -> None:
        """Read what was there before, and go on with it.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self.open()
        self._ticking.start()

    async def stop(self) -> None:
        """Monitor no more. The job that runs is ended, and run again when the host is started again."""
        await self._ticking.stop()
        async with self._state.changing:
            await self._scheduler.cancel()
            await self._state.close()

    async def tick(self) -> None:
        """What is done each second."""
        async with self._state.changing:
            await self._scheduler.tick()

    async def idle(self) -> None:
        """Return once no job runs."""
        await self._scheduler.idle()

    def _done(self, execution: Execution, result: Result) -> None:
        if result.columns and result.emits_metrics and execution.work.publishes_metrics:
            store = self._stores.of(execution.scope)
            publish(store, result, execution.endpoint.name, execution.schedule, self._now())
