"""Models of several frameworks on one endpoint: `python -m examples.hosting.multi_model [DIRECTORY]`.

They are loaded when they are first asked for. How many are loaded, and how often a model was there already, CloudWatch
tells afterwards. DIRECTORY is what `examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.
"""

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
ARCHIVES = ("digits.tar.gz", "add_sub.tar.gz", "read_digit.tar.gz")
ROUNDS = 5
INVOCATIONS, INSTANCES = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
PATIENCE_S = 180
"""How long to wait for a figure: CloudWatch counts by the minute."""

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
cw_client = boto3.client("cloudwatch")


def invoke(endpoint: str, target: str, output: str, **inputs: NDArray[Any]) -> NDArray[Any]:
    """What a model of the endpoint answers."""
    tensors = [tensor(name, array) for name, array in inputs.items()]
    response = runtime_sm_client.invoke_endpoint(
        EndpointName=endpoint, TargetModel=target, **bodies.request(*tensors)
    )
    answer: NDArray[Any] = bodies.result(response).as_numpy(output)
    return answer


def ask_all(endpoint: str, image: NDArray[np.uint8]) -> list[str]:
    """What an ONNX model, a Python model and an ensemble of both say."""
    first, second = np.array([0.5, 1, 2, 4], np.float32), np.array([1, 1, 2, 2], np.float32)
    probabilities = invoke(endpoint, "digits.tar.gz", "probabilities", image=image)
    total = invoke(endpoint, "add_sub.tar.gz", "OUTPUT0", INPUT0=first, INPUT1=second)
    word = invoke(endpoint, "read_digit.tar.gz", "word", image=image)
    return [str(probabilities.argmax()), str(total.tolist()), word[0, 0].decode()]


def statistic(endpoint: str, namespace: str, metric: str, kind: str) -> list[float]:
    """One figure for each minute of the last quarter of an hour."""
    answer = cw_client.get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[
            {"Name": "EndpointName", "Value": endpoint},
            {"Name": "VariantName", "Value": "AllTraffic"},
        ],
        StartTime=datetime.now(UTC) - timedelta(minutes=15),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=60,
        Statistics=[kind],
    )
    return [point[kind] for point in answer["Datapoints"]]


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("many-models-%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-multi-model"
    s3_client.create_bucket(Bucket=bucket)
    for archive in ARCHIVES:
        s3_client.upload_file(str(directory / "archives" / archive), bucket, f"models/{archive}")

    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/models/", "Mode": "MultiModel"}
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sm_client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "InstanceType": "ml.m5.large",
                "InitialVariantWeight": 1,
                "InitialInstanceCount": 1,
                "ModelName": name,
                "VariantName": "AllTraffic",
            }
        ],
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    response = sm_client.describe_endpoint(EndpointName=name)
    status = response["EndpointStatus"]
    while status == "Creating":
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=name)
        status = response["EndpointStatus"]
    if status != "InService":
        raise SystemExit(f"{name}: {status}: {response.get('FailureReason')}")
    print(f"{name}: {status}")

    image = np.fromfile(directory / "digit.bin", np.uint8).reshape(1, 8, 8)
    for _ in range(ROUNDS):
        began = time.monotonic()
        answers = ask_all(name, image)
        took = time.monotonic() - began
        print(f"{', '.join(ARCHIVES)}: {', '.join(answers)} ({took * 1e3:.0f} ms)")
        if answers != ["7", "[1.5, 2.0, 4.0, 6.0]", "seven"]:
            raise SystemExit("wrong answer")

    deadline = time.monotonic() + PATIENCE_S
    while len(ARCHIVES) not in (loaded := statistic(name, INSTANCES, "LoadedModelCount", "Maximum")):
        if time.monotonic() > deadline:
            raise SystemExit(f"LoadedModelCount is {loaded} after {PATIENCE_S} seconds")
        time.sleep(5)
    invocations = sum(statistic(name, INVOCATIONS, "ModelCacheHit", "SampleCount"))
    hits = sum(statistic(name, INVOCATIONS, "ModelCacheHit", "Sum"))
    print(f"LoadedModelCount: {max(loaded):.0f}")
    print(f"ModelCacheHit: {hits:.0f} of {invocations:.0f}")
    asked = ROUNDS * len(ARCHIVES)
    if (max(loaded), hits, invocations) != (len(ARCHIVES), asked - len(ARCHIVES), asked):
        raise SystemExit("wrong figures: each model is loaded once, and there from then on")

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    for archive in ARCHIVES:
        s3_client.delete_object(Bucket=bucket, Key=f"models/{archive}")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
