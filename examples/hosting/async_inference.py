"""Requests that wait in a queue, and an endpoint without instances: `python -m examples.hosting.async_inference`.

Pictures of digits are uploaded, the requests for them put into the queue of an asynchronous endpoint, and the results
fetched from the bucket when they are there; a topic says which that were. A policy then removes the last instance as
nothing is to be done, and an alarm brings one back as soon as there is a request. DIRECTORY, build/hosting by default,
is what `examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.

CloudWatch counts by the minute, so that it takes half an hour; a host with `--metric-period=1` does it in a minute.
"""

import sys
import time
import uuid
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.exceptions import ClientError
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment
from examples.hosting.pictures import read_pictures

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
VARIANT = "AllTraffic"
BUCKET = "hosting-async"
PICTURES = 20
PATIENCE_S = 3600

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
sns_client = boto3.client("sns")
scaling_client = boto3.client("application-autoscaling")
cloudwatch_client = boto3.client("cloudwatch")


def create_endpoint(name: str, topic: str) -> None:
    """An asynchronous endpoint with one instance, in service."""
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/digits.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
    }
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": VARIANT,
                "ModelName": name,
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
        ],
        AsyncInferenceConfig={
            "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 4},
            "OutputConfig": {
                "S3OutputPath": f"s3://{BUCKET}/output",
                "S3FailurePath": f"s3://{BUCKET}/failures",
                "NotificationConfig": {"SuccessTopic": topic, "ErrorTopic": topic},
            },
        },
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)


def scale(name: str) -> dict[str, str]:
    """Let the endpoint have no instances while there is nothing to be done, and one as soon as there is."""
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{name}/variant/{VARIANT}",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    dimensions = [{"Name": "EndpointName", "Value": name}]
    scaling_client.register_scalable_target(**target, MinCapacity=0, MaxCapacity=3)
    scaling_client.put_scaling_policy(
        **target,
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
            "ScaleInCooldown": 300,
            "ScaleOutCooldown": 100,
        },
    )
    policy = scaling_client.put_scaling_policy(
        **target,
        PolicyName="from-zero",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average",
            "Cooldown": 150,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    cloudwatch_client.put_metric_alarm(
        AlarmName=f"{name}-backlog-without-capacity",
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
        AlarmActions=[policy["PolicyARN"]],
    )
    return target


def ask(name: str, picture: NDArray[np.uint8]) -> dict[str, Any]:
    """Upload a picture and put a request for it into the queue."""
    request = bodies.request(tensor("image", picture[np.newaxis]))
    key = f"input/{uuid.uuid4()}"
    s3_client.put_object(Bucket=BUCKET, Key=key, Body=request["Body"])
    answer: dict[str, Any] = runtime_sm_client.invoke_endpoint_async(
        EndpointName=name, InputLocation=f"s3://{BUCKET}/{key}", ContentType=request["ContentType"]
    )
    return answer


def result(answer: dict[str, Any]) -> int:
    """The digit that a result says, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            key = answer["OutputLocation"].partition(f"{BUCKET}/")[2]
            found = bodies.result(s3_client.get_object(Bucket=BUCKET, Key=key))
            return int(found.as_numpy("probabilities").argmax())
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            time.sleep(0.2)
    raise SystemExit(f"waited in vain for {answer['OutputLocation']}")


def wait_for(name: str, count: int) -> None:
    """Return once the endpoint has so many instances."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        endpoint = sm_client.describe_endpoint(EndpointName=name)
        if endpoint["ProductionVariants"][0]["CurrentInstanceCount"] == count:
            print(f"instances: {count}, {endpoint['EndpointStatus']}", flush=True)
            return
        time.sleep(1)
    raise SystemExit(f"waited in vain for {count} instances")


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("async-%Y-%m-%d-%H-%M-%S")
    s3_client.create_bucket(Bucket=BUCKET)
    s3_client.upload_file(str(directory / "archives" / "current.tar.gz"), BUCKET, "digits.tar.gz")
    topic = sns_client.create_topic(Name=name)["TopicArn"]
    create_endpoint(name, topic)
    print(f"{name}: InService")

    pictures, targets = read_pictures(directory)
    answers = [ask(name, picture) for picture in pictures[:PICTURES]]
    right = sum(result(answer) == target for answer, target in zip(answers, targets, strict=False))
    print(f"{right} of {PICTURES} results are right")

    target = scale(name)
    wait_for(name, 0)
    answer = ask(name, pictures[7])
    print(f"accepted without an instance: {answer['ResponseMetadata']['HTTPStatusCode']}")
    print(f"a {result(answer)}")
    activities = scaling_client.describe_scaling_activities(
        ServiceNamespace="sagemaker", ResourceId=target["ResourceId"]
    )["ScalingActivities"]
    for activity in reversed(activities):
        print(f"{activity['Description']} {activity['Cause'].rpartition(' triggered ')[2]}")

    cloudwatch_client.delete_alarms(AlarmNames=[f"{name}-backlog-without-capacity"])
    scaling_client.deregister_scalable_target(**target)
    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    sns_client.delete_topic(TopicArn=topic)
    for page in s3_client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", ()):
            s3_client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    s3_client.delete_bucket(Bucket=BUCKET)
    print("deleted")


if __name__ == "__main__":
    main()
