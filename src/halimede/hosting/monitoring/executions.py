"""The operations on executions, and on the processing jobs that they are to SDKs."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.monitoring.records import DATA_QUALITY, Execution, ExecutionStatus
from halimede.hosting.monitoring.state import MonitoringState

_MAX_REASON = 1024

_JOB_STATUSES = {
    ExecutionStatus.PENDING: "InProgress",
    ExecutionStatus.WITH_VIOLATIONS: "Completed",
}
"""What processing jobs call states that they do not have."""

Request = Mapping[str, Any]
Answer = dict[str, Any]


class ExecutionOperations:
    """Executions of schedules."""

    def __init__(self, state: MonitoringState, stop: Callable[[Execution], Awaitable[None]]) -> None:
        """The operations.

        Args:
            state: where executions are.
            stop: stops one; whoever calls it holds `MonitoringState.changing`.
        """
        self._state = state
        self._stop = stop

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "ListMonitoringExecutions": self._list,
            "DescribeProcessingJob": self._describe_job,
            "StopProcessingJob": self._stop_job,
        }

    async def _list(self, request: Request, caller: Caller) -> Answer:
        before, after = request.get("ScheduledTimeBefore"), request.get("ScheduledTimeAfter")
        entries = []
        for (scope, _), execution in self._state.executions.items():
            if scope != caller.scope or not _is_meant(execution, request):
                continue
            summary = summary_of(execution)
            time = summary["ScheduledTime"]
            if (before is None or time <= before) and (after is None or time >= after):
                entries.append(summary)
        return page_of(
            entries, request, "ProcessingJobArn", "MonitoringExecutionSummaries", "MonitoringExecutionStatus"
        )

    def _find(self, request: Request, caller: Caller) -> Execution:
        name = request["ProcessingJobName"]
        found = self._state.executions.get((caller.scope, name))
        if found is None:
            arn = caller.scope.arn("processing-job", name)
            raise ApiError(
                "ResourceNotFound",
                f'Could not find processing job "{arn}". This host has none but those of monitoring schedules.',
            )
        return found

    async def _describe_job(self, request: Request, caller: Caller) -> Answer:
        return _job(self._find(request, caller))

    async def _stop_job(self, request: Request, caller: Caller) -> Answer:
        async with self._state.changing:
            found = self._find(request, caller)
            if found.status not in (ExecutionStatus.PENDING, ExecutionStatus.IN_PROGRESS):
                raise invalid(f'Cannot stop processing job "{found.arn}", which is {found.status}.')
            await self._stop(found)
        return {}


def _is_meant(execution: Execution, request: Request) -> bool:
    return all(
        request.get(member, value) == value
        for member, value in (
            ("MonitoringScheduleName", execution.schedule),
            ("EndpointName", execution.endpoint.name),
            ("MonitoringJobDefinitionName", execution.definition),
            ("MonitoringTypeEquals", DATA_QUALITY),
        )
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def summary_of(execution: Execution) -> Answer:
    """An execution, as SageMaker sums it up."""
    summary: Answer = {
        "MonitoringScheduleName": execution.schedule,
        "ScheduledTime": _time(execution.scheduled),
        "CreationTime": _time(execution.created),
        "LastModifiedTime": _time(execution.modified),
        "MonitoringExecutionStatus": str(execution.status),
        "ProcessingJobArn": execution.arn,
        "EndpointName": execution.endpoint.name,
        "MonitoringType": DATA_QUALITY,
    }
    if execution.reason:
        summary["FailureReason"] = execution.reason[:_MAX_REASON]
    if execution.definition:
        summary["MonitoringJobDefinitionName"] = execution.definition
    return summary


def _job(execution: Execution) -> Answer:
    job = execution.work
    source = job.source
    answer: Answer = {
        "ProcessingJobName": execution.name,
        "ProcessingJobArn": execution.arn,
        "ProcessingJobStatus": _JOB_STATUSES.get(execution.status, str(execution.status)),
        "MonitoringScheduleArn": execution.scope.arn("monitoring-schedule", execution.schedule),
        "CreationTime": _time(execution.created),
        "LastModifiedTime": _time(execution.modified),
        "AppSpecification": {"ImageUri": job.image},
        "ProcessingResources": {"ClusterConfig": job.resources["ClusterConfig"]},
        "StoppingCondition": {"MaxRuntimeInSeconds": job.max_runtime_s},
        "RoleArn": job.role,
        "Environment": job.environment,
        "ProcessingInputs": [
            {
                "InputName": "endpoint_input_1",
                "AppManaged": False,
                "S3Input": {
                    "S3Uri": execution.source,
                    "LocalPath": source["LocalPath"],
                    "S3DataType": "S3Prefix",
                    "S3InputMode": source.get("S3InputMode", "File"),
                    "S3DataDistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
                    "S3CompressionType": "None",
                },
            }
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": "result",
                    "AppManaged": False,
                    "S3Output": {
                        "S3Uri": execution.output,
                        "LocalPath": "/opt/ml/processing/output",
                        "S3UploadMode": "EndOfJob",
                    },
                }
            ]
        },
    }
    if execution.message:
        answer["ExitMessage"] = execution.message
    if execution.reason:
        answer["FailureReason"] = execution.reason[:_MAX_REASON]
    for member, time in (("ProcessingStartTime", execution.started), ("ProcessingEndTime", execution.ended)):
        if time is not None:
            answer[member] = _time(time)
    return answer
