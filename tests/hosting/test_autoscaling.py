"""Variants of a real host, with real instances, follow their load."""

import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
PATIENCE_S = 90.0

pytestmark = pytest.mark.timeout(200)


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

    def settle(self) -> None:
        _until(
            lambda: self.sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService", self
        )

    def track(self, low: int = 1, high: int = 3) -> None:
        """Keep the variant at five requests a period and instance."""
        self.autoscaling.register_scalable_target(**TARGET, MinCapacity=low, MaxCapacity=high)
        metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        self.autoscaling.put_scaling_policy(
            **TARGET,
            PolicyName="p",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 5.0,
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

    def activities(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.autoscaling.describe_scaling_activities(
            ServiceNamespace="sagemaker"
        )["ScalingActivities"]
        return found

    @contextmanager
    def load(self) -> Iterator[list[Exception]]:
        """Requests, one after the other, while the block runs: those that failed."""
        runtime, over, failures = (
            self.process.client("sagemaker-runtime"),
            threading.Event(),
            list[Exception](),
        )

        def ask() -> None:
            while not over.is_set():
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
def _host(place: Path) -> Iterator[Host]:
    flags = [f"--bucket=models={place / 'bucket'}", "--metric-period=1", "--describe-hold=0"]
    with start_host(place / "host", *flags) as process:
        yield Host(process, place)


def _until(condition: Callable[[], bool], host: Host) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, host.process.log
        time.sleep(0.05)


def test_load_scales_out_and_its_end_scales_in(place: Path) -> None:
    with _host(place) as host:
        host.serve()
        host.track()
        alarms = host.cloudwatch.describe_alarms()["MetricAlarms"]
        assert [alarm["EvaluationPeriods"] for alarm in alarms] == [3, 15]
        with host.load() as failures:
            _until(lambda: host.count() == 3, host)
            _until(lambda: host.activities()[0]["StatusCode"] == "Successful", host)
        _until(lambda: host.count() == 1, host)
        _until(lambda: host.activities()[0]["StatusCode"] == "Successful", host)
        assert failures == []
        last, *others = host.activities()
        assert last["Description"] == "Setting desired instance count to 1."
        assert last["StatusMessage"] == (
            "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker."
        )
        assert "AlarmLow" in last["Cause"]
        counts = [int(each["Description"].rpartition(" ")[2].rstrip(".")) for each in reversed(others)]
        top = counts.index(3)
        assert counts == sorted(counts[: top + 1]) + sorted(counts[top + 1 :], reverse=True)
        assert all("AlarmHigh" in each["Cause"] for each in list(reversed(others))[: top + 1])

        host.configure("other", "ml.m5.xlarge")
        with pytest.raises(ClientError) as refused:
            host.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="other")
        assert 'The variant(s) "[A]" must be deregistered as scalable targets' in str(refused.value)

        host.sagemaker.delete_endpoint(EndpointName="e")
        targets = host.autoscaling.get_paginator("describe_scalable_targets")
        _until(
            lambda: not list(targets.paginate(ServiceNamespace="sagemaker").search("ScalableTargets[]")), host
        )
        _until(lambda: not host.cloudwatch.describe_alarms()["MetricAlarms"], host)


def test_a_host_that_is_killed_while_it_scales_goes_on(place: Path) -> None:
    with _host(place) as host:
        host.serve("time.sleep(2)")
        host.autoscaling.register_scalable_target(**TARGET, MinCapacity=3, MaxCapacity=3)
        assert host.activities()[0]["StatusCode"] == "InProgress"
        host.process.process.kill()
        host.process.process.wait(10)
    with _host(place) as host:
        _until(lambda: host.activities()[0]["StatusCode"] == "Successful", host)
        host.settle()
        assert host.count() == 3
        assert [each["Cause"] for each in host.activities()] == ["minimum capacity was set to 3"]
        _until(lambda: len(dict(marked(place / "host"))) == 3, host)


def test_no_room_is_a_failed_activity_with_the_reason(place: Path) -> None:
    with _host(place) as host:
        host.serve()
        host.autoscaling.register_scalable_target(**TARGET, MinCapacity=500, MaxCapacity=500)
        _until(lambda: host.activities()[0]["StatusCode"] == "Failed", host)
        activity = host.activities()[0]
        assert activity["StatusMessage"].startswith("Failed to set desired instance count to 500. Reason: ")
        host.settle()
        reason = host.sagemaker.describe_endpoint(EndpointName="e")["FailureReason"]
        assert reason in activity["StatusMessage"]
        assert host.count() == 1
