"""Monitoring on a clock that the test sets, asked through boto3."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.api.services import Operation, Service
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller, EndpointId, Scope
from halimede.hosting.metering.cloudwatch import cloudwatch_service
from halimede.hosting.metering.store import MetricStores
from halimede.hosting.monitoring.job import Result
from halimede.hosting.monitoring.monitoring import Monitoring
from halimede.hosting.monitoring.records import Execution
from halimede.hosting.monitoring.scheduler import Runner
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.objects import Objects
from halimede.hosting.store.offers import OfferTokens
from halimede.hosting.store.sources import model_source
from tests.hosting.services import serve_services
from tests.support.clients import Clients
from tests.support.loops import LoopThread

NOON = 1_772_625_600.0
"""Noon of the fourth of March 2026, in UTC."""

HOUR = 3600.0
SCOPE = Scope()
ROLE = "arn:aws:iam::000000000000:role/monitoring"
HOURLY = "cron(0 * ? * * *)"
RESOURCES = {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 10}}
OUTPUT = {"MonitoringOutputs": [{"S3Output": {"S3Uri": "s3://data/reports", "LocalPath": "/opt/ml/output"}}]}
INPUT = {"EndpointInput": {"EndpointName": "e", "LocalPath": "/opt/ml/input"}}
IMAGE = {"ImageUri": "156813124566.dkr.ecr.us-east-1.amazonaws.com/sagemaker-model-monitor-analyzer"}


def definition(name: str = "d", **further: Any) -> dict[str, Any]:
    """A CreateDataQualityJobDefinition request."""
    return {
        "JobDefinitionName": name,
        "DataQualityAppSpecification": IMAGE,
        "DataQualityJobInput": INPUT,
        "DataQualityJobOutputConfig": OUTPUT,
        "JobResources": RESOURCES,
        "RoleArn": ROLE,
        **further,
    }


def inline(**further: Any) -> dict[str, Any]:
    """A `MonitoringJobDefinition`, as older SDKs send it."""
    return {
        "MonitoringInputs": [INPUT],
        "MonitoringOutputConfig": OUTPUT,
        "MonitoringResources": RESOURCES,
        "MonitoringAppSpecification": IMAGE,
        "RoleArn": ROLE,
        **further,
    }


class FakeConfigs(dict[EndpointId, Mapping[str, Any]]):
    """Endpoints and what they serve by."""

    def config_of(self, endpoint: EndpointId) -> Mapping[str, Any] | None:
        return self.get(endpoint)


@dataclass
class FakeRunner:
    """Ends jobs when the test says so."""

    running: dict[str, asyncio.Future[Result]] = field(default_factory=dict)
    begun: list[Execution] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def run(self, execution: Execution) -> Result:
        self.begun.append(execution)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.running[execution.name] = future
        try:
            return await future
        except asyncio.CancelledError:
            self.cancelled.append(execution.name)
            raise
        finally:
            del self.running[execution.name]


@dataclass
class Monitored:
    """A running host that only monitors.

    Attributes:
        loop: where it runs.
        now: the time, which stands still.
        pace: what a second of AWS's takes here.
        configs: endpoints; ``e`` is there.
        runner: runs jobs; None for real ones.
        bucket: the directory whose files are the objects of the bucket ``data``.
    """

    loop: LoopThread
    directory: Path
    runner: FakeRunner | None
    now: float = NOON + 600
    pace: float = 1.0
    configs: FakeConfigs = field(default_factory=FakeConfigs)
    clients: Clients = field(default_factory=Clients)
    port: int = 0
    monitoring: Monitoring = field(init=False)
    stores: MetricStores = field(default_factory=MetricStores)

    def __post_init__(self) -> None:
        self.add("e")
        self.bucket.mkdir(exist_ok=True)

    @property
    def bucket(self) -> Path:
        return self.directory / "bucket"

    def add(self, endpoint: str, **capture: Any) -> None:
        """Let there be an endpoint."""
        wanted = {"EnableCapture": True, "DestinationS3Uri": "s3://data/captured", **capture}
        config = {"ProductionVariants": [{"VariantName": "A"}], "DataCaptureConfig": wanted}
        self.configs[EndpointId(*SCOPE, endpoint)] = config

    def client(self, service: str = "sagemaker", **settings: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}"
        return self.clients.make(service, url, {"parameter_validation": False}, **settings)

    async def start(self) -> None:
        directories = {"data": self.bucket}
        places = model_source(
            ObjectStore(self.directory / "store"), OfferTokens(self.directory / "key"), "", directories
        )
        runner: Runner | None = self.runner
        self.monitoring = Monitoring(
            self.directory,
            self.configs,
            lambda account: Objects(places, account),
            self.stores,
            lambda seconds: seconds * self.pace,
            lambda: self.now,
            runner,
        )
        await self.monitoring.open()

    def restart(self) -> None:
        """Another process goes on."""
        self.loop.run(self.monitoring.stop())
        self.loop.run(self.start())

    def tick(self, after: float = 0.0) -> None:
        """Let some time pass."""
        self.now += after
        self.loop.run(self.monitoring.tick())

    def run_jobs(self) -> None:
        """Begin what is due, and return once it has ended."""
        self.tick()
        self.loop.run(self.monitoring.idle(), timeout=120)

    def schedule(self, name: str = "s", expression: str = HOURLY, **offsets: str) -> str:
        """Make a schedule of the definition ``d``: its ARN."""
        config = {
            "ScheduleConfig": {"ScheduleExpression": expression, **offsets},
            "MonitoringJobDefinitionName": "d",
            "MonitoringType": "DataQuality",
        }
        arn: str = self.client().create_monitoring_schedule(
            MonitoringScheduleName=name, MonitoringScheduleConfig=config
        )["MonitoringScheduleArn"]
        return arn

    def executions(self, **request: Any) -> list[dict[str, Any]]:
        """The executions, the newest first."""
        found: list[dict[str, Any]] = self.client().list_monitoring_executions(**request)[
            "MonitoringExecutionSummaries"
        ]
        return found

    def statuses(self, **request: Any) -> list[str]:
        return [each["MonitoringExecutionStatus"] for each in self.executions(**request)]

    def finish(self, **result: Any) -> None:
        """The job that runs ends."""
        assert self.runner is not None
        [future] = self.runner.running.values()
        self.loop.call(future.set_result, Result(**result))
        self.loop.run(self.monitoring.idle())

    def fail(self, error: Exception) -> None:
        """The job that runs fails."""
        assert self.runner is not None
        [future] = self.runner.running.values()
        self.loop.call(future.set_exception, error)
        self.loop.run(self.monitoring.idle())

    def refused(self, operation: str, **request: Any) -> tuple[str, str]:
        """The code and the text with which an operation is refused."""
        with pytest.raises(ClientError) as raised:
            getattr(self.client(), operation)(**request)
        error = raised.value.response["Error"]
        return error["Code"], error["Message"]


async def _others(_: Mapping[str, Any], __: Caller) -> Mapping[str, Any]:
    raise ApiError("ValidationException", "somebody else's")


_OTHERS: dict[str, Operation] = dict.fromkeys(("AddTags", "ListTags", "DeleteTags"), _others)


@contextmanager
def monitored(directory: Path, runner: FakeRunner | None) -> Iterator[Monitored]:
    """A host while the block runs; what it knows stays in the directory."""
    with LoopThread() as loop:
        host = Monitored(loop, directory, runner)
        loop.run(host.start())
        services = [_Current(host), cloudwatch_service(host.stores, now=lambda: host.now)]
        try:
            with serve_services(loop, services) as host.port:  # type: ignore[arg-type]
                try:
                    yield host
                finally:
                    host.clients.close()
        finally:
            loop.run(host.monitoring.stop())


class _Current:
    """The service of the process that runs now."""

    def __init__(self, host: Monitored) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(Service("sagemaker", self._host.monitoring.operations(_OTHERS)), name)


def at(text: str) -> datetime:
    """A time of the fourth of March 2026, in UTC."""
    return datetime.fromisoformat(f"2026-03-04T{text}").replace(tzinfo=UTC)
