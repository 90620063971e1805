"""Two classifiers of digits on one endpoint: `python -m examples.hosting.ab_test [DIRECTORY]`.

Pictures go to either by weight; which one answered, the response says. Then each gets the same pictures by name, and
the better one gets all of the traffic. DIRECTORY is what `examples.hosting.build` has written. Where SageMaker is,
AWS_ENDPOINT_URL says.
"""

import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import numpy as np
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment
from examples.hosting.pictures import read_pictures

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
WEIGHTS = {"current": 3, "candidate": 1}
PICTURES = 200
PATIENCE_S = 180
"""How long to wait for counts: CloudWatch counts by the minute."""

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
cw_client = boto3.client("cloudwatch")


def classify(endpoint: str, image: NDArray[np.uint8], variant: str = "") -> tuple[str, int]:
    """Which variant answered, and what digit it saw; an empty variant lets the weights decide."""
    wanted = {"TargetVariant": variant} if variant else {}
    response = runtime_sm_client.invoke_endpoint(
        EndpointName=endpoint, **wanted, **bodies.request(tensor("image", image[np.newaxis]))
    )
    digit = int(bodies.result(response).as_numpy("probabilities").argmax())
    return response["InvokedProductionVariant"], digit


def counted(endpoint: str, variant: str) -> int:
    """How many invocations of the variant CloudWatch knows of."""
    answer = cw_client.get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": variant},
        ],
        StartTime=datetime.now(UTC) - timedelta(minutes=15),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
    )
    return int(sum(point["Sum"] for point in answer["Datapoints"]))


def wait(endpoint: str) -> None:
    """Return once the endpoint is in service."""
    response = sm_client.describe_endpoint(EndpointName=endpoint)
    while (status := response["EndpointStatus"]) in ("Creating", "Updating"):
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=endpoint)
    if status != "InService":
        raise SystemExit(f"{endpoint}: {status}: {response.get('FailureReason')}")
    weights = [f"{each['VariantName']} {each['CurrentWeight']:g}" for each in response["ProductionVariants"]]
    print(f"{endpoint}: {status}; weights: {', '.join(weights)}")


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    name = f"classifiers-{stamp}"
    bucket = "hosting-ab-test"
    s3_client.create_bucket(Bucket=bucket)
    for variant in WEIGHTS:
        s3_client.upload_file(str(directory / "archives" / f"{variant}.tar.gz"), bucket, f"{variant}.tar.gz")
        container = {
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{bucket}/{variant}.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
        }
        sm_client.create_model(
            ModelName=f"ab-{variant}-{stamp}", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m5.large",
                "InitialVariantWeight": weight,
                "InitialInstanceCount": 1,
                "ModelName": f"ab-{variant}-{stamp}",
                "VariantName": variant,
            }
            for variant, weight in WEIGHTS.items()
        ],
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    wait(name)

    pictures, targets = (each[-PICTURES:] for each in read_pictures(directory))
    sent = Counter(classify(name, picture)[0] for picture in pictures)
    print(f"by weight: {', '.join(f'{variant} {sent[variant]}' for variant in WEIGHTS)}")
    if not sent["current"] > sent["candidate"] > 0:
        raise SystemExit("wrong shares: three of four requests are for the current classifier")

    right: Counter[str] = Counter()
    for variant in WEIGHTS:
        for picture, target in zip(pictures, targets, strict=True):
            answered, digit = classify(name, picture, variant)
            if answered != variant:
                raise SystemExit(f"wrong variant: {answered} answered what was sent to {variant}")
            sent[variant] += 1
            right[variant] += int(digit == target)
    print(f"right of {PICTURES}: {', '.join(f'{variant} {right[variant]}' for variant in WEIGHTS)}")
    if right["current"] < 0.9 * PICTURES or right["candidate"] >= right["current"]:
        raise SystemExit("wrong answers: the current classifier has learned more")

    sm_client.update_endpoint_weights_and_capacities(
        EndpointName=name,
        DesiredWeightsAndCapacities=[
            {"VariantName": "current", "DesiredWeight": 1},
            {"VariantName": "candidate", "DesiredWeight": 0},
        ],
    )
    wait(name)
    later = Counter(classify(name, picture)[0] for picture in pictures)
    if later != {"current": PICTURES}:
        raise SystemExit(f"wrong shares: {dict(later)}, though the candidate has no weight any more")
    sent += later

    deadline = time.monotonic() + PATIENCE_S
    while (counts := {variant: counted(name, variant) for variant in WEIGHTS}) != dict(sent):
        if time.monotonic() > deadline:
            raise SystemExit(f"wrong counts: CloudWatch says {counts}, and {dict(sent)} were sent")
        time.sleep(1)
    print(f"CloudWatch: {', '.join(f'{variant} {count}' for variant, count in counts.items())}")

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    for variant in WEIGHTS:
        sm_client.delete_model(ModelName=f"ab-{variant}-{stamp}")
        s3_client.delete_object(Bucket=bucket, Key=f"{variant}.tar.gz")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
