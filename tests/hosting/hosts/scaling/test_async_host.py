"""Asynchronous endpoints of a real host: killed under load, and scaled to zero and back."""

import json
import random
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.lines import complete_lines
from tests.support.waiting import let_pass

ROLE = "arn:aws:iam::000000000000:role/halimede"
TOPIC = "arn:aws:sns:us-east-1:000000000000:ended"
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/A",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
PATIENCE_S = 150.0
SELDOM_S = 0.2
"""The pause between two looks where something takes seconds."""

pytestmark = pytest.mark.timeout(400)


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


def _flags(place: Path) -> tuple[str, ...]:
    return f"--bucket=models={place / 'bucket'}", "--describe-hold=5"


def _serve(host: HostProcess, place: Path) -> None:
    """Have an asynchronous endpoint ``e``, whose results go to the bucket ``results``."""
    sagemaker = host.client("sagemaker")
    host.client("s3").create_bucket(Bucket="results")
    host.client("sns").create_topic(Name="ended")
    container = {"Image": str(place / "serve-program"), "ModelDataUrl": "s3://models/model.tar.gz"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    _configure(host, "c")
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    host.wait_until(lambda: _status(host) == "InService", "the endpoint")


def _status(host: HostProcess) -> str:
    described: dict[str, Any] = host.client("sagemaker").describe_endpoint(EndpointName="e")
    return str(described["EndpointStatus"])


def _configure(host: HostProcess, name: str, **further: Any) -> None:
    variant = {
        "VariantName": "A",
        "ModelName": "m",
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": 1,
    }
    output = {
        "S3OutputPath": "s3://results/out/",
        "S3FailurePath": "s3://results/errors",
        "NotificationConfig": {"SuccessTopic": TOPIC, "ErrorTopic": TOPIC},
    }
    config = {"AsyncInferenceConfig": {"OutputConfig": output}} | further
    host.client("sagemaker").create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant], **{k: v for k, v in config.items() if v}
    )


def _objects(host: HostProcess) -> list[str]:
    pages = host.client("s3").get_paginator("list_objects_v2").paginate(Bucket="results")
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def test_host_that_is_killed_under_load_answers_each_request_once(place: Path) -> None:
    chance = random.Random(17)
    accepted: list[str] = []
    for life in range(3):
        with start_host(place / "host", *_flags(place)) as host:
            if not life:
                _serve(host, place)
            runtime = host.client("sagemaker-runtime")
            over = threading.Event()

            def ask(runtime: Any = runtime, over: threading.Event = over) -> None:
                with suppress(Exception):  # the host is killed in the end
                    while not over.is_set():
                        answer = runtime.invoke_endpoint_async(EndpointName="e", Body=b"x")
                        accepted.append(answer["InferenceId"])
                        over.wait(0.01)

            asking = [threading.Thread(target=ask) for _ in range(4)]
            for thread in asking:
                thread.start()
            before = len(accepted)
            host.wait_until(lambda before=before: len(accepted) > before, "an answer")  # type: ignore[misc]
            let_pass(chance.random() / 2, "the host is killed at any moment")
            host.process.kill()
            host.process.wait(30)
            over.set()
            for thread in asking:
                thread.join()
    log = place / "host" / "notifications" / "000000000000" / "us-east-1" / "ended.log"
    with start_host(place / "host", *_flags(place)) as host:
        host.wait_until(lambda: len(_objects(host)) >= len(accepted), "all results")
        host.wait_until(lambda: complete_lines(log).count("\n") >= len(_objects(host)), "all messages")
        keys = _objects(host)
        messages = [json.loads(json.loads(line)["Message"]) for line in complete_lines(log).splitlines()]
    assert len(accepted) > 20
    told = Counter(message["inferenceId"] for message in messages)
    assert set(told.values()) == {1}
    # of what was under way when the host was killed nobody knows whether it was accepted
    assert set(told) >= set(accepted)
    assert sorted(keys) == sorted(f"out/{each}.out" for each in told)
    assert {message["invocationStatus"] for message in messages} == {"Completed"}


def test_endpoint_is_scaled_to_zero_and_from_zero(place: Path) -> None:
    flags = (*_flags(place), "--metric-period=1", "--router-processes=2")
    with start_host(place / "host", *flags) as host:
        _serve(host, place)
        sagemaker, scaling = host.client("sagemaker"), host.client("application-autoscaling")
        cloudwatch, runtime = host.client("cloudwatch"), host.client("sagemaker-runtime")
        with pytest.raises(ClientError, match="is an asynchronous endpoint"):
            runtime.invoke_endpoint(EndpointName="e", Body=b"x")

        until = partial(host.wait_until, timeout=PATIENCE_S, longest_s=SELDOM_S)

        def count() -> int:
            described = sagemaker.describe_endpoint(EndpointName="e")
            (variant,) = described["ProductionVariants"]
            return int(variant["CurrentInstanceCount"])

        dimensions = [{"Name": "EndpointName", "Value": "e"}]
        scaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
        scaling.put_scaling_policy(
            **TARGET,
            PolicyName="backlog",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 5.0,
                "CustomizedMetricSpecification": {
                    "MetricName": "ApproximateBacklogSizePerInstance",
                    "Namespace": "AWS/SageMaker",
                    "Dimensions": dimensions,
                    "Statistic": "Average",
                },
                "ScaleInCooldown": 1,
                "ScaleOutCooldown": 1,
            },
        )
        step = scaling.put_scaling_policy(
            **TARGET,
            PolicyName="from-zero",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "MetricAggregationType": "Average",
                "Cooldown": 1,
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        )
        cloudwatch.put_metric_alarm(
            AlarmName="backlog-without-capacity",
            MetricName="HasBacklogWithoutCapacity",
            Namespace="AWS/SageMaker",
            Dimensions=dimensions,
            Statistic="Average",
            Period=60,
            EvaluationPeriods=2,
            DatapointsToAlarm=2,
            Threshold=1.0,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
            TreatMissingData="missing",
            AlarmActions=[step["PolicyARN"]],
        )
        until(lambda: count() == 0, "no instance")
        assert sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService"
        answers = [runtime.invoke_endpoint_async(EndpointName="e", Body=b"x") for _ in range(3)]
        until(lambda: len(_objects(host)) == 3, "three results")
        assert sorted(_objects(host)) == sorted(f"out/{each['InferenceId']}.out" for each in answers)
        until(lambda: count() == 0, "no instance again")
        causes = [
            activity["Cause"]
            for activity in scaling.describe_scaling_activities(ServiceNamespace="sagemaker")[
                "ScalingActivities"
            ]
            if activity["StatusCode"] == "Successful"
        ]
        assert any("triggered policy from-zero" in cause for cause in causes)
        sagemaker.delete_endpoint(EndpointName="e")
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def test_endpoint_stays_of_its_kind(place: Path) -> None:
    with start_host(place / "host", *_flags(place)) as host:
        _serve(host, place)
        sagemaker = host.client("sagemaker")
        _configure(host, "sync", AsyncInferenceConfig=None)
        with pytest.raises(ClientError, match="was created with AsyncInferenceConfig"):
            sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="sync")
        weights = [{"VariantName": "A", "DesiredInstanceCount": 0}]
        sagemaker.update_endpoint_weights_and_capacities(
            EndpointName="e", DesiredWeightsAndCapacities=weights
        )
        host.wait_until(lambda: _status(host) == "InService", "the update")
        [variant] = sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
        assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (0, 0)
        config = sagemaker.describe_endpoint_config(EndpointConfigName="c")["AsyncInferenceConfig"]
        assert config["OutputConfig"]["S3OutputPath"] == "s3://results/out/"
        assert sagemaker.describe_endpoint(EndpointName="e")["AsyncInferenceConfig"] == config
        container = {"Image": "halimede", "ModelDataUrl": "s3://models/many/", "Mode": "MultiModel"}
        sagemaker.create_model(ModelName="many", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": "A",
            "ModelName": "many",
            "InstanceType": "ml.local.cpu",
            "InitialInstanceCount": 1,
        }
        with pytest.raises(ClientError, match="'many' is of Mode MultiModel"):
            sagemaker.create_endpoint_config(
                EndpointConfigName="no",
                ProductionVariants=[variant],
                AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://results"}},
            )
