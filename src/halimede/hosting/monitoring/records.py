"""What is kept of monitoring: job definitions, schedules and their executions. Times are seconds since 1970."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from halimede.hosting.identity import EndpointId, Scope

DATA_QUALITY = "DataQuality"
"""The only type of monitoring that there is here."""

SCHEDULE, DEFINITION, JOB = "monitoring-schedule", "data-quality-job-definition", "processing-job"
"""What ARNs call them."""


ALERT_OK, IN_ALERT = "OK", "InAlert"


class ScheduleStatus(StrEnum):
    """States of a schedule, as SageMaker calls them."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    FAILED = "Failed"
    STOPPED = "Stopped"


class ExecutionStatus(StrEnum):
    """States of an execution, as SageMaker calls them."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    WITH_VIOLATIONS = "CompletedWithViolations"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


_NEXT = {
    ExecutionStatus.PENDING: {ExecutionStatus.IN_PROGRESS, ExecutionStatus.FAILED, ExecutionStatus.STOPPED},
    ExecutionStatus.IN_PROGRESS: {
        ExecutionStatus.PENDING,  # the host ended meanwhile
        ExecutionStatus.COMPLETED,
        ExecutionStatus.WITH_VIOLATIONS,
        ExecutionStatus.FAILED,
        ExecutionStatus.STOPPING,
    },
    ExecutionStatus.STOPPING: {ExecutionStatus.STOPPED},
}
"""Legal moves; the other states stay."""

ENDED = frozenset(ExecutionStatus) - _NEXT.keys()
"""States that stay."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A data-quality job definition.

    Attributes:
        scope: where its name holds.
        name: its name.
        request: what it was made from.
        created: when.
    """

    scope: Scope
    name: str
    request: Mapping[str, Any]
    created: float

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.scope.arn(DEFINITION, self.name)

    @property
    def endpoint(self) -> str:
        """The endpoint that it monitors."""
        name: str = self.request["DataQualityJobInput"]["EndpointInput"]["EndpointName"]
        return name

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return {"request": self.request, "created": self.created}


@dataclass(frozen=True, slots=True)
class Job:
    """What an execution does, whichever way it was said.

    Attributes:
        source: the `EndpointInput`.
        output: the S3 URI below which its files are put.
        statistics, constraints: URIs of the baseline's files; "" for none.
        environment: variables for the container that is not there.
        image: the image that is not run.
        max_runtime_s: so long it may take.
        role: the role's ARN.
        resources: the `JobResources`.
    """

    source: Mapping[str, Any]
    output: str
    statistics: str
    constraints: str
    environment: Mapping[str, str]
    image: str
    max_runtime_s: float
    role: str
    resources: Mapping[str, Any]

    @classmethod
    def of_definition(cls, request: Mapping[str, Any]) -> Self:
        """That of a CreateDataQualityJobDefinition request."""
        specification = request["DataQualityAppSpecification"]
        return cls._of(
            request["DataQualityJobInput"],
            request["DataQualityJobOutputConfig"],
            request.get("DataQualityBaselineConfig") or {},
            specification,
            specification.get("Environment") or {},
            request["JobResources"],
            request,
        )

    @classmethod
    def of_inline(cls, document: Mapping[str, Any]) -> Self:
        """That of a `MonitoringJobDefinition`."""
        return cls._of(
            document["MonitoringInputs"][0],
            document["MonitoringOutputConfig"],
            document.get("BaselineConfig") or {},
            document["MonitoringAppSpecification"],
            document.get("Environment") or {},
            document["MonitoringResources"],
            document,
        )

    @classmethod
    def _of(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        baseline: Mapping[str, Any],
        specification: Mapping[str, Any],
        environment: Mapping[str, str],
        resources: Mapping[str, Any],
        rest: Mapping[str, Any],
    ) -> Self:
        return cls(
            inputs["EndpointInput"],
            outputs["MonitoringOutputs"][0]["S3Output"]["S3Uri"],
            (baseline.get("StatisticsResource") or {}).get("S3Uri", ""),
            (baseline.get("ConstraintsResource") or {}).get("S3Uri", ""),
            environment,
            specification["ImageUri"],
            (rest.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds", 3600),
            rest["RoleArn"],
            resources,
        )

    @property
    def endpoint(self) -> str:
        """The endpoint that is monitored."""
        name: str = self.source["EndpointName"]
        return name

    @property
    def publishes_metrics(self) -> bool:
        """Whether CloudWatch is to be told."""
        return self.environment.get("publish_cloudwatch_metrics", "Enabled") == "Enabled"


@dataclass(slots=True)
class Schedule:
    """A monitoring schedule.

    Attributes:
        scope: where its name holds.
        name: its name.
        config: the `MonitoringScheduleConfig`.
        status: its state.
        created, modified: when.
        started: from when on its times count.
        reason: why it failed, "" if it did not.
        datapoints, period: so many bad executions of the last so many are an alert.
        alert_modified: when those were changed; None for never.
        alerts: when the alert's state has changed, and what it has become; the oldest first.
    """

    scope: Scope
    name: str
    config: Mapping[str, Any]
    status: ScheduleStatus
    created: float
    modified: float
    started: float
    reason: str = ""
    datapoints: int = 1
    period: int = 1
    alert_modified: float | None = None
    alerts: list[tuple[float, str]] = field(default_factory=list)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.scope.arn(SCHEDULE, self.name)

    @property
    def alert(self) -> str:
        """The state of its alert."""
        return self.alerts[-1][1] if self.alerts else ALERT_OK

    @property
    def definition_name(self) -> str:
        """The job definition that it names; "" if it has one of its own."""
        name: str = self.config.get("MonitoringJobDefinitionName", "")
        return name

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        document = asdict(self)
        del document["scope"], document["name"]
        return document

    @classmethod
    def from_document(cls, scope: Scope, name: str, document: Mapping[str, Any]) -> Self:
        """The schedule that was kept."""
        return cls(scope, name, **{**document, "status": ScheduleStatus(document["status"])})


@dataclass(slots=True)
class Execution:
    """One run of a schedule's job.

    Attributes:
        scope: the schedule's.
        name: its own; the job's name.
        schedule: the schedule's name.
        definition: the job definition's name, "" if the schedule has one of its own.
        job: what it does, as a document.
        scheduled: when it was to run.
        begin, end: which time's data it looks at; the end is no part of it.
        source: where the captured data are.
        output: where its files are put.
        created, modified: when.
        status: its state.
        reason: why it failed, "" if it did not.
        message: what came out of it.
        attempts: how often it was begun.
        started, ended: when it was begun the last time, and when that was over; None for not yet.
    """

    scope: Scope
    name: str
    schedule: str
    definition: str
    job: dict[str, Any]
    scheduled: float
    begin: float
    end: float
    source: str
    output: str
    created: float
    modified: float
    status: ExecutionStatus = ExecutionStatus.PENDING
    reason: str = ""
    message: str = ""
    attempts: int = 0
    started: float | None = None
    ended: float | None = None

    @property
    def arn(self) -> str:
        """Its job's ARN."""
        return self.scope.arn(JOB, self.name)

    @property
    def endpoint(self) -> EndpointId:
        """What it monitors."""
        return EndpointId(*self.scope, self.work.endpoint)

    @property
    def work(self) -> Job:
        """What it does."""
        return Job(**self.job)

    def move(self, status: ExecutionStatus, now: float) -> None:
        """Have another state, which must be a legal one."""
        assert status in _NEXT.get(self.status, ()), f"{self.status} → {status}"
        self.status, self.modified = status, now

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        document = asdict(self)
        del document["scope"], document["name"]
        return document

    @classmethod
    def from_document(cls, scope: Scope, name: str, document: Mapping[str, Any]) -> Self:
        """The execution that was kept."""
        return cls(scope, name, **{**document, "status": ExecutionStatus(document["status"])})
