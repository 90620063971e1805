"""A canary deployment that an alarm rolls back, and one that comes about: `python -m examples.hosting.canary`.

An endpoint with a classifier of digits is updated to a faulty one: a quarter of the requests goes there, an alarm on
the errors of the new configuration goes off, and all requests go to the old one again. Then it is updated to a
classifier that answers. Where SageMaker is, AWS_ENDPOINT_URL says.

    python -m examples.hosting.canary [DIRECTORY [SECONDS]]

DIRECTORY is what `examples.hosting.build` has written; SECONDS is how long alarms are watched after each shift of
requests, 120 by default. CloudWatch's alarms take a minute or two to go off; on a host with `--metric-period=1` they
take a second or two, and 5 are enough.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.exceptions import ClientError
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
VARIANT = "AllTraffic"
MODELS = ("current", "faulty", "candidate")
PAUSE_S = 0.02
PATIENCE_S = 1800

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
cw_client = boto3.client("cloudwatch")


def create_auto_rollback_alarm(alarm: str, endpoint: str, config: str, metric: str, threshold: float) -> None:
    """An alarm on a metric of the new fleet, which SageMaker publishes under the name of its configuration."""
    cw_client.put_metric_alarm(
        AlarmName=alarm,
        AlarmDescription="Rolls the deployment back",
        ActionsEnabled=False,
        Namespace="AWS/SageMaker",
        MetricName=metric,
        Statistic="Average",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": VARIANT},
            {"Name": "EndpointConfigName", "Value": config},
        ],
        Period=60,
        EvaluationPeriods=1,
        Threshold=threshold,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
    )


@contextmanager
def load(endpoint: str, picture: NDArray[np.uint8]) -> Iterator[Counter[str]]:
    """Requests, some 40 a second, while the block runs: how many were answered, and how many were not, and why."""
    over, outcomes = threading.Event(), Counter[str]()
    request = bodies.request(tensor("image", picture))

    def ask() -> None:
        while not over.wait(PAUSE_S):
            try:
                runtime_sm_client.invoke_endpoint(EndpointName=endpoint, **request)["Body"].read()
                outcomes["answered"] += 1
            except ClientError as error:
                outcomes[error.response["Error"]["Code"]] += 1

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield outcomes
    finally:
        over.set()
        asking.join()


def wait(endpoint: str) -> dict[str, Any]:
    """Tell what is being done to the endpoint until it is in service: its description then."""
    deadline, shown = time.monotonic() + PATIENCE_S, ""
    while True:
        response: dict[str, Any] = sm_client.describe_endpoint(EndpointName=endpoint)
        if response["EndpointStatus"] not in ("Creating", "Updating", "RollingBack"):
            return response
        for variant in response.get("PendingDeploymentSummary", {}).get("ProductionVariants", ()):
            for status in variant.get("VariantStatus", ()):
                message = status.get("StatusMessage", "").partition(", until")[0].partition(" until")[0]
                line = f"  {response['EndpointStatus']}: {status['Status']}, {message}"
                if line != shown:
                    print(line, flush=True)
                    shown = line
        if time.monotonic() > deadline:
            raise SystemExit(f"{endpoint} is still {response['EndpointStatus']}")
        time.sleep(0.5)


def update(endpoint: str, config: str, picture: NDArray[np.uint8], wait_s: int) -> dict[str, Any]:
    """Update the endpoint with a canary, and alarms that roll it back: its description afterwards."""
    alarms = {
        f"{config}-5xx": ("Invocation5XXErrors", 0.05),
        f"{config}-latency": ("ModelLatency", 2_000_000),
    }
    for alarm, (metric, threshold) in alarms.items():
        create_auto_rollback_alarm(alarm, endpoint, config, metric, threshold)
    canary = {"Type": "CAPACITY_PERCENT", "Value": 25}
    print(f"{endpoint}: updating to {config}")
    with load(endpoint, picture) as outcomes:
        sm_client.update_endpoint(
            EndpointName=endpoint,
            EndpointConfigName=config,
            DeploymentConfig={
                "BlueGreenUpdatePolicy": {
                    "TrafficRoutingConfiguration": {
                        "Type": "CANARY",
                        "CanarySize": canary,
                        "WaitIntervalInSeconds": wait_s,
                    },
                    "TerminationWaitInSeconds": 0,
                    "MaximumExecutionTimeoutInSeconds": 1800,
                },
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm} for alarm in alarms]},
            },
        )
        described = wait(endpoint)
    print(f"{endpoint}: {described['EndpointStatus']} with {described['EndpointConfigName']}")
    if "FailureReason" in described:
        print(f"  {described['FailureReason']}")
    print(f"  requests: {', '.join(f'{count} {name}' for name, count in sorted(outcomes.items()))}")
    cw_client.delete_alarms(AlarmNames=list(alarms))
    return described


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    wait_s = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    endpoint, bucket = f"canary-{stamp}", "hosting-canary"
    s3_client.create_bucket(Bucket=bucket)
    for model in MODELS:
        s3_client.upload_file(str(directory / "archives" / f"{model}.tar.gz"), bucket, f"{model}.tar.gz")
        container = {
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{bucket}/{model}.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
        }
        sm_client.create_model(
            ModelName=f"{model}-{stamp}", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        sm_client.create_endpoint_config(
            EndpointConfigName=f"{model}-{stamp}",
            ProductionVariants=[
                {
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                    "ModelName": f"{model}-{stamp}",
                    "VariantName": VARIANT,
                }
            ],
        )
    sm_client.create_endpoint(EndpointName=endpoint, EndpointConfigName=f"current-{stamp}")
    wait(endpoint)

    picture = np.fromfile(directory / "digit.bin", np.uint8).reshape(1, 8, 8)
    faulty = update(endpoint, f"faulty-{stamp}", picture, wait_s)
    if faulty["EndpointConfigName"] != f"current-{stamp}":
        raise SystemExit("wrong: a faulty model has come about")
    good = update(endpoint, f"candidate-{stamp}", picture, wait_s)
    if good["EndpointConfigName"] != f"candidate-{stamp}":
        raise SystemExit("wrong: a good model has not come about")

    sm_client.delete_endpoint(EndpointName=endpoint)
    for model in MODELS:
        sm_client.delete_endpoint_config(EndpointConfigName=f"{model}-{stamp}")
        sm_client.delete_model(ModelName=f"{model}-{stamp}")
        s3_client.delete_object(Bucket=bucket, Key=f"{model}.tar.gz")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
