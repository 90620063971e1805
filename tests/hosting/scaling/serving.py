"""Autoscaling on a clock that the test sets, asked through boto3."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.identity import EndpointId, Scope
from halimede.hosting.scaling.autoscaling import Autoscaling
from tests.hosting.scaling.fakes import FakeAlarms, FakeVariant, FakeVariants, State
from tests.hosting.services import serve_services
from tests.support.clients import Clients
from tests.support.loops import LoopThread

NOON = 1_772_625_600.0
"""Noon of the fourth of March 2026, in UTC: a Wednesday."""

SCOPE = Scope()
RESOURCE = "endpoint/e/variant/A"
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": RESOURCE,
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
INVOCATIONS = {
    "TargetValue": 10.0,
    "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
}


@dataclass
class Scaled:
    """A running host that only scales.

    Attributes:
        loop: where it runs.
        now: the time, which stands still.
        variants: what it scales; ``endpoint/e/variant/A`` is there.
        alarms: because of which.
        pace: what a second of AWS's takes here.
        high: the high alarm of the policy ``p``.
        low: its low one.
    """

    loop: LoopThread
    directory: Path
    now: float = NOON
    pace: float = 1.0
    variants: FakeVariants = field(default_factory=FakeVariants)
    alarms: FakeAlarms = field(default_factory=FakeAlarms)
    clients: Clients = field(default_factory=Clients)
    port: int = 0
    high: str = ""
    low: str = ""
    autoscaling: Autoscaling = field(init=False)

    def __post_init__(self) -> None:
        self.add("e", "A")

    def client(self, **settings: Any) -> Any:
        """A client of boto3, which checks nothing and tries once."""
        url = f"http://127.0.0.1:{self.port}"
        return self.clients.make("application-autoscaling", url, {"parameter_validation": False}, **settings)

    def add(self, endpoint: str, variant: str, scope: Scope = SCOPE) -> FakeVariant:
        """Let there be a variant."""
        made = self.variants.variants[EndpointId(*scope, endpoint), variant] = FakeVariant()
        return made

    @property
    def variant(self) -> FakeVariant:
        """The one that is there from the beginning."""
        return self.variants.variants[EndpointId(*SCOPE, "e"), "A"]

    def tick(self, after: float = 1.0) -> None:
        """Let some time pass."""
        self.now += after
        self.loop.run(self.autoscaling.tick())

    def settle(self) -> None:
        """What was begun is done."""
        for variant in self.variants.variants.values():
            variant.settle()
        self.tick()

    def evaluate(self, name: str, *values: float, state: State = State.ALARM, scope: Scope = SCOPE) -> None:
        """An alarm has looked at values, the last one last."""
        self.loop.call(lambda: self.alarms.evaluate(scope, name, *values, state=state))

    def restart(self) -> None:
        """Another process goes on; the variants and the alarms are as they were."""
        self.loop.run(self.autoscaling.stop())
        self.loop.run(self.start())

    async def start(self) -> None:
        self.autoscaling = Autoscaling(
            self.directory / "scaling.db",
            self.variants,
            self.alarms,
            lambda seconds: seconds * self.pace,
            lambda: self.now,
        )
        await self.autoscaling.open()

    # what most tests need

    def register(self, low: int = 1, high: int = 10, **further: Any) -> str:
        arn: str = self.client().register_scalable_target(
            **{**TARGET, "MinCapacity": low, "MaxCapacity": high, **further}
        )["ScalableTargetARN"]
        return arn

    def track(self, name: str = "p", **config: Any) -> list[str]:
        """Put a target tracking policy: the names of its alarms."""
        answer = self.client().put_scaling_policy(
            **TARGET,
            PolicyName=name,
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={**INVOCATIONS, **config},
        )
        names = [alarm["AlarmName"] for alarm in answer["Alarms"]]
        if name == "p":
            self.high, self.low = names[0], names[-1]
        return names

    def step(self, name: str = "s", alarm: str = "user-alarm", adjustment: int = 1, **config: Any) -> str:
        """Put a step scaling policy and the alarm of a user for it: its ARN."""
        arn: str = self.client().put_scaling_policy(
            **TARGET,
            PolicyName=name,
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": adjustment}],
                **config,
            },
        )["PolicyARN"]
        request = {"AlarmName": alarm, "AlarmActions": [arn], "Threshold": 50.0}
        self.loop.run(self.alarms.put(SCOPE, request))
        return arn

    def activities(self, **request: Any) -> list[dict[str, Any]]:
        """The activities, the newest first."""
        found: list[dict[str, Any]] = self.client().describe_scaling_activities(
            ServiceNamespace="sagemaker", **request
        )["ScalingActivities"]
        return found

    def statuses(self, **request: Any) -> Sequence[tuple[str, str]]:
        """What the activities did, and what has become of it."""
        return [(each["Description"], each["StatusCode"]) for each in self.activities(**request)]

    def reasons(self) -> list[str]:
        """Why nothing was done, the newest first."""
        return [
            reason["Code"]
            for activity in self.activities(IncludeNotScaledActivities=True)
            for reason in activity.get("NotScaledReasons", ())
        ]

    def refused(self, operation: str, **request: Any) -> tuple[str, str]:
        """The code and the text with which an operation is refused."""
        with pytest.raises(ClientError) as raised:
            getattr(self.client(), operation)(**request)
        error = raised.value.response["Error"]
        return error["Code"], error["Message"]


@contextmanager
def scaled(directory: Path) -> Iterator[Scaled]:
    """A host while the block runs; what it knows stays in the directory."""
    with LoopThread() as loop:
        host = Scaled(loop, directory)
        loop.run(host.start())
        try:
            with serve_services(loop, [_Current(host)]) as host.port:  # type: ignore[list-item]
                try:
                    yield host
                finally:
                    host.clients.close()
        finally:
            loop.run(host.autoscaling.stop())


class _Current:
    """The service of the process that runs now."""

    def __init__(self, host: Scaled) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host.autoscaling.service(), name)
