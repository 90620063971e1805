"""Variants of a real host, with real instances, follow their load."""

import random
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked, marked
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/halimede"
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/A",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
PATIENCE_S = 150.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with an archive and a program, and one for the host, of which nothing runs in the end."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(tmp_path / "bucket" / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "config.pbtxt", "m/config.pbtxt")
    write_serve(tmp_path)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


class Host:
    """A host whose minutes are seconds, with an endpoint ``e`` of one variant."""

    def __init__(self, process: HostProcess, place: Path) -> None:
        self.process = process
        self.sagemaker = process.client("sagemaker")
        self.autoscaling = process.client("application-autoscaling")
        self.cloudwatch = process.client("cloudwatch")
        self._place = place

    def serve(self, script: str = "") -> None:
        """Have the endpoint in service, with an instance of a program that runs a script first."""
        container = {
            "Image": str(self._place / "serve-program"),
            "ModelDataUrl": "s3://models/model.tar.gz",
            "Environment": {"SCRIPT": script},
        }
        self.sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        self.configure("c", "ml.local.cpu")
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        self.settle()

    def configure(self, name: str, instance_type: str) -> None:
        variant = {
            "VariantName": "A",
            "ModelName": "m",
            "InstanceType": instance_type,
            "InitialInstanceCount": 1,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Return once the condition holds; it may take seconds."""
        self.process.wait_until(condition, what, PATIENCE_S, longest_s=0.2)

    def settle(self) -> None:
        """Return once the endpoint is in service."""
        status = "EndpointStatus"
        self.until(
            lambda: self.sagemaker.describe_endpoint(EndpointName="e")[status] == "InService", "the endpoint"
        )

    def track(self, low: int = 1, high: int = 3, value: float = 2.0) -> None:
        """Keep the variant at so many requests a period and instance."""
        self.autoscaling.register_scalable_target(**TARGET, MinCapacity=low, MaxCapacity=high)
        metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        self.autoscaling.put_scaling_policy(
            **TARGET,
            PolicyName="p",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": value,
                "PredefinedMetricSpecification": metric,
                "ScaleInCooldown": 0,
                "ScaleOutCooldown": 0,
            },
        )

    def count(self) -> int:
        """How many instances take requests."""
        (variant,) = self.sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
        count: int = variant["CurrentInstanceCount"]
        return count

    def periods(self, least: float, since: float = 0.0) -> int:
        """Of how many periods there is a metric of so many requests or more."""
        begin, end = datetime.fromtimestamp(max(since, time.time() - 300), UTC), datetime.now(UTC)
        answer = self.cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=[{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}],
            StartTime=begin,
            EndTime=end,
            Period=1,
            Statistics=["Sum"],
        )
        return sum(point["Sum"] >= least for point in answer["Datapoints"])

    def activities(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.autoscaling.describe_scaling_activities(
            ServiceNamespace="sagemaker"
        )["ScalingActivities"]
        return found

    def check(self) -> None:
        """There are as many instances as the target wants, and no activity goes on."""
        (target,) = self.autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")[
            "ScalableTargets"
        ]
        wanted = target["MinCapacity"]
        assert wanted == target["MaxCapacity"]
        self.until(lambda: self.count() == wanted, "as many instances as are wanted")
        self.until(lambda: not {"Pending", "InProgress"} & set(self.statuses()), "the end of all activities")
        self.settle()
        self.until(lambda: len(set(dict(marked(self._place / "host")).values())) == wanted, "processes")

    def statuses(self) -> list[str]:
        """The states of the activities, the newest first."""
        return [activity["StatusCode"] for activity in self.activities()]

    def counts(self) -> list[int]:
        """The numbers of instances that activities have set, the newest last."""
        said = [activity["Description"].rpartition(" ")[2] for activity in reversed(self.activities())]
        return [int(number.rstrip(".")) for number in said]

    @contextmanager
    def load(self, pause_s: float = 0.0) -> Iterator[list[Exception]]:
        """Requests, at most one each `pause_s`, while the block runs: those that failed."""
        runtime, over, failures = (
            self.process.client("sagemaker-runtime"),
            threading.Event(),
            list[Exception](),
        )

        def ask() -> None:
            due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                due = max(due, time.monotonic() - pause_s) + pause_s
                try:
                    runtime.invoke_endpoint(EndpointName="e", Body=b"x")["Body"].read()
                except ClientError as error:
                    failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield failures
        finally:
            over.set()
            asking.join()


@contextmanager
def _host(place: Path, *further: str) -> Iterator[Host]:
    flags = [f"--bucket=models={place / 'bucket'}", "--metric-period=1", "--describe-hold=0", *further]
    with start_host(place / "host", *flags) as process:
        yield Host(process, place)


def test_load_scales_out_and_its_end_scales_in(place: Path) -> None:
    with _host(place) as host:
        host.serve()
        host.track()
        alarms = host.cloudwatch.describe_alarms()["MetricAlarms"]
        assert [alarm["EvaluationPeriods"] for alarm in alarms] == [3, 15]
        with host.load(1 / 24) as failures:
            host.until(lambda: host.count() == 3, "three instances")
            host.until(lambda: host.statuses()[0] == "Successful", "the end of the activity")
        host.until(lambda: host.count() == 1, "one instance")
        host.until(lambda: host.statuses()[0] == "Successful", "the end of the activity")
        assert failures == []
        last = host.activities()[0]
        assert last["StatusMessage"] == (
            "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker."
        )
        counts = host.counts()
        top = counts.index(3)
        assert counts == sorted(counts[:top]) + sorted(counts[top:], reverse=True)
        causes = [activity["Cause"] for activity in reversed(host.activities())]
        assert ["AlarmHigh" in cause for cause in causes] == [number <= top for number in range(len(causes))]

        host.configure("other", "ml.m5.xlarge")
        with pytest.raises(ClientError) as refused:
            host.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="other")
        assert 'The variant(s) "[A]" must be deregistered as scalable targets' in str(refused.value)

        host.sagemaker.delete_endpoint(EndpointName="e")
        targets = host.autoscaling.get_paginator("describe_scalable_targets")
        host.until(
            lambda: not list(targets.paginate(ServiceNamespace="sagemaker").search("ScalableTargets[]")),
            "the end of the target",
        )
        host.until(lambda: not host.cloudwatch.describe_alarms()["MetricAlarms"], "the end of the alarms")


def test_a_spike_is_met_at_once_and_nothing_oscillates_after_it(place: Path) -> None:
    with _host(place) as host:
        host.serve()
        host.track(high=8, value=10.0)
        with host.load(1 / 2.4):
            host.until(lambda: host.periods(2.0) >= 3, "three periods of little load")
            assert host.activities() == []
        with host.load(1 / 24):
            host.until(lambda: host.count() > 1, "more instances")
            since = time.time()
            host.until(lambda: host.periods(5.0, since) >= 20, "twenty periods of much load")
            # one step, or some that all go the same way if this machine is too busy to send so many at once
            counts = host.counts()
            assert counts == sorted(counts)
            assert len(counts) <= 2
            assert counts[-1] == host.count() == 3


def test_an_alarm_on_a_metric_of_ones_own_runs_a_step_policy(place: Path) -> None:
    with _host(place) as host:
        host.serve()
        host.autoscaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=4)
        steps = [
            {"MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 10, "ScalingAdjustment": 1},
            {"MetricIntervalLowerBound": 10, "ScalingAdjustment": 2},
        ]
        arn = host.autoscaling.put_scaling_policy(
            **TARGET,
            PolicyName="queue",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={"AdjustmentType": "ChangeInCapacity", "StepAdjustments": steps},
        )["PolicyARN"]
        host.cloudwatch.put_metric_alarm(
            AlarmName="long-queue",
            Namespace="shop",
            MetricName="Queue",
            Statistic="Maximum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=50,
            ComparisonOperator="GreaterThanThreshold",
            AlarmActions=[arn],
        )
        (policy,) = host.autoscaling.describe_scaling_policies(ServiceNamespace="sagemaker")[
            "ScalingPolicies"
        ]
        assert [alarm["AlarmName"] for alarm in policy["Alarms"]] == ["long-queue"]

        def grows() -> bool:
            datum = {"MetricName": "Queue", "Value": 65}
            host.cloudwatch.put_metric_data(Namespace="shop", MetricData=[datum])
            return host.count() == 3

        host.until(grows, "three instances")
        host.until(lambda: host.statuses()[0] == "Successful", "the end of the activity")
        activity = host.activities()[-1]
        assert activity["Cause"] == "monitor alarm long-queue in state ALARM triggered policy queue"
        assert activity["Description"] == "Setting desired instance count to 3."
        history = host.cloudwatch.describe_alarm_history(AlarmName="long-queue", HistoryItemType="Action")
        assert history["AlarmHistoryItems"][-1]["HistorySummary"] == f"Successfully executed action {arn}"


def test_a_host_that_is_killed_while_it_scales_goes_on(place: Path) -> None:
    with _host(place) as host:
        host.serve("time.sleep(1)")
        host.autoscaling.register_scalable_target(**TARGET, MinCapacity=3, MaxCapacity=3)
        assert host.activities()[0]["StatusCode"] == "InProgress"
        host.process.process.kill()
        host.process.process.wait(60)
    with _host(place) as host:
        host.until(lambda: host.statuses()[0] == "Successful", "the end of the activity")
        host.settle()
        assert host.count() == 3
        assert [each["Cause"] for each in host.activities()] == ["minimum capacity was set to 3"]
        host.until(lambda: len(dict(marked(place / "host"))) == 3, "three processes")


def test_a_host_that_is_killed_at_any_moment_of_a_change_brings_it_to_its_end(place: Path) -> None:
    chance = random.Random(16)
    for life, count in enumerate((3, 1, 2)):
        with _host(place) as host:
            if not life:
                host.serve()
                host.autoscaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=1)
            host.check()
            timer = threading.Timer(chance.random() * 0.6, host.process.process.kill)
            timer.start()
            with suppress(Exception):  # the connection breaks in one way or another
                host.autoscaling.register_scalable_target(**TARGET, MinCapacity=count, MaxCapacity=count)
            host.process.process.wait(60)
            timer.join()
    with _host(place) as host:
        host.check()


def test_no_room_is_a_failed_activity_with_the_reason(place: Path) -> None:
    with _host(place, "--oversubscription=1") as host:
        host.serve()
        host.autoscaling.register_scalable_target(**TARGET, MinCapacity=500, MaxCapacity=500)
        host.until(lambda: "Failed" in host.statuses(), "the failure")
        activity = next(each for each in host.activities() if each["StatusCode"] == "Failed")
        assert activity["StatusMessage"].startswith("Failed to set desired instance count to 500. Reason: ")
        host.settle()
        reason = host.sagemaker.describe_endpoint(EndpointName="e")["FailureReason"]
        assert reason in activity["StatusMessage"]
        assert host.count() == 1
