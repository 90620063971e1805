"""Containers in a row, and containers side by side: `python -m examples.hosting.pipeline [DIRECTORY]`.

In a row, one makes tensors of CSV, one classifies, and one makes words of probabilities. Side by side, two classifiers
share an instance, and each request says which one it is for. DIRECTORY is what `examples.hosting.build` has written.
Where SageMaker is, AWS_ENDPOINT_URL says.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.exceptions import ClientError

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment
from examples.hosting.pictures import read_pictures

TRITON_IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
CSV_IMAGE = str(Path(__file__).parent.resolve() / "images" / "digits_csv.py")
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
PICTURES = 64

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")


def deploy(name: str, containers: list[dict[str, Any]], mode: str) -> None:
    """Create an endpoint of one instance with these containers, and wait for it."""
    sm_client.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        Containers=containers,
        InferenceExecutionConfig={"Mode": mode},
    )
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
                "ModelName": name,
                "VariantName": "AllTraffic",
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    response = sm_client.describe_endpoint(EndpointName=name)
    while (status := response["EndpointStatus"]) == "Creating":
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=name)
    if status != "InService":
        raise SystemExit(f"{name}: {status}: {response.get('FailureReason')}")
    print(f"{name}: {status}")


def delete(name: str) -> None:
    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)


def refusal(name: str, **request: Any) -> str:
    """The error that an invocation ends with."""
    try:
        runtime_sm_client.invoke_endpoint(EndpointName=name, **request)
    except ClientError as error:
        text = error.response["Error"]["Message"].partition(" See the log group")[0]
        return f"{error.response['Error']['Code']}: {text}"
    raise SystemExit("wrong answer: that should have been refused")


def in_a_row(name: str, bucket: str, directory: Path) -> None:
    classifier = {
        "Image": TRITON_IMAGE,
        "ModelDataUrl": f"s3://{bucket}/current.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
        "ContainerHostname": "classify",
    }
    containers = [
        {"Image": CSV_IMAGE, "Environment": {"CONVERTS": "to_tensors"}, "ContainerHostname": "to-tensors"},
        classifier,
        {"Image": CSV_IMAGE, "Environment": {"CONVERTS": "to_words"}, "ContainerHostname": "to-words"},
    ]
    deploy(name, containers, "Serial")

    picture = np.fromfile(directory / "digit.bin", np.uint8)
    payload = ",".join(map(str, picture))
    response = runtime_sm_client.invoke_endpoint(
        EndpointName=name, ContentType="text/csv", Accept="text/csv", Body=f"{payload}\n{payload}\n"
    )
    words = response["Body"].read().decode().split()
    print(f"in a row: {', '.join(words)} as {response['ContentType']}")
    if words != ["seven", "seven"]:
        raise SystemExit("wrong answer: the picture shows a seven")
    print(refusal(name, ContentType="text/csv", Body="1,2,3\n"))
    delete(name)


def side_by_side(name: str, bucket: str, directory: Path) -> None:
    containers = [
        {
            "Image": TRITON_IMAGE,
            "ModelDataUrl": f"s3://{bucket}/{classifier}.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
            "ContainerHostname": classifier,
        }
        for classifier in ("current", "candidate")
    ]
    deploy(name, containers, "Direct")

    pictures, targets = (each[-PICTURES:] for each in read_pictures(directory))
    for classifier in ("current", "candidate"):
        response = runtime_sm_client.invoke_endpoint(
            EndpointName=name,
            TargetContainerHostname=classifier,
            **bodies.request(tensor("image", pictures)),
        )
        found = bodies.result(response).as_numpy("probabilities").argmax(1)
        print(f"{classifier}: {(found == targets).sum()} of {PICTURES} right")
    print(refusal(name, Body=json.dumps({})))
    delete(name)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-pipeline"
    s3_client.create_bucket(Bucket=bucket)
    for archive in ("current.tar.gz", "candidate.tar.gz"):
        s3_client.upload_file(str(directory / "archives" / archive), bucket, archive)

    in_a_row(f"row-{stamp}", bucket, directory)
    side_by_side(f"side-{stamp}", bucket, directory)

    for archive in ("current.tar.gz", "candidate.tar.gz"):
        s3_client.delete_object(Bucket=bucket, Key=archive)
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
