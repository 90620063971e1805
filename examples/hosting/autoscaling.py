"""A variant that follows its load: `python -m examples.hosting.autoscaling [DIRECTORY]`.

A policy keeps the classifier of digits at so many requests an instance in each period of the metric. Load makes it
scale out, and when that ends it scales in again; then the activities are printed. DIRECTORY is what
`examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.

CloudWatch counts by the minute, so that it takes half an hour; a host with `--metric-period=1` does it in a minute.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import numpy as np
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
VARIANT = "AllTraffic"
LEAST, MOST = 1, 3
TARGET = 2.0
"""Requests an instance and period."""

PAUSE_S = 0.02
PATIENCE_S = 3600

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
scaling_client = boto3.client("application-autoscaling")


@contextmanager
def load(endpoint: str, picture: NDArray[np.uint8]) -> Iterator[list[Exception]]:
    """Requests, some 40 a second, while the block runs: those that failed."""
    over, failures = threading.Event(), list[Exception]()
    request = bodies.request(tensor("image", picture))

    def ask() -> None:
        while not over.wait(PAUSE_S):
            try:
                runtime_sm_client.invoke_endpoint(EndpointName=endpoint, **request)["Body"].read()
            except Exception as error:  # whatever it is, it is told in the end
                failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield failures
    finally:
        over.set()
        asking.join()


def instances(endpoint: str) -> int:
    """How many instances take requests."""
    (variant,) = sm_client.describe_endpoint(EndpointName=endpoint)["ProductionVariants"]
    return int(variant["CurrentInstanceCount"])


def wait_for(endpoint: str, count: int, shown: int = 0) -> None:
    """Return once there are so many instances, and tell meanwhile how many there are if not so many as were shown."""
    deadline = time.monotonic() + PATIENCE_S
    while shown != count:
        now = instances(endpoint)
        if now != shown:
            print(f"instances: {now}", flush=True)
            shown = now
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {count} instances")
        time.sleep(1)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("scaled-%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-autoscaling"
    s3_client.create_bucket(Bucket=bucket)
    s3_client.upload_file(str(directory / "archives" / "current.tar.gz"), bucket, "digits.tar.gz")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{bucket}/digits.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
    }
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
                "ModelName": name,
                "VariantName": VARIANT,
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)
    print(f"{name}: InService")

    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/{VARIANT}",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling_client.register_scalable_target(**target, MinCapacity=LEAST, MaxCapacity=MOST)
    answer = scaling_client.put_scaling_policy(
        **target,
        PolicyName="load",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": TARGET,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            },
            "ScaleOutCooldown": 120,
            "ScaleInCooldown": 120,
        },
    )
    print(f"alarms: {len(answer['Alarms'])}")

    picture = np.fromfile(directory / "digit.bin", np.uint8).reshape(1, 8, 8)
    with load(name, picture) as failures:
        wait_for(name, MOST)
    wait_for(name, LEAST, shown=MOST)
    if failures:
        raise SystemExit(f"{len(failures)} requests failed, the first with: {failures[0]}")

    waiting = True
    while waiting:
        activities = scaling_client.describe_scaling_activities(
            ServiceNamespace="sagemaker", ResourceId=target["ResourceId"]
        )["ScalingActivities"]
        waiting = any(activity["StatusCode"] == "InProgress" for activity in activities)
        time.sleep(waiting)
    for activity in reversed(activities):
        alarm = "AlarmHigh" if "AlarmHigh" in activity["Cause"] else "AlarmLow"
        print(f"{activity['StatusCode']}: {activity['Description']} ({alarm})")

    scaling_client.deregister_scalable_target(**target)
    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    s3_client.delete_object(Bucket=bucket, Key="digits.tar.gz")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
