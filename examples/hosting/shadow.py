"""A classifier of digits that is tried on another one's traffic: `python -m examples.hosting.shadow [DIRECTORY]`.

First as a shadow variant of an endpoint configuration: it gets a copy of each request, then of one in four, and clients
get the production variant's answers alone. Then as an inference experiment, which brings the shadow variant to an
endpoint that has none, and at its end puts it in the production variant's place. DIRECTORY is what
`examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.
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
from examples.hosting.pictures import read_pictures

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
BUCKET = "hosting-shadow"
PICTURES = 200
PATIENCE_S = 180
"""How long to wait for counts: CloudWatch counts by the minute."""

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
cw_client = boto3.client("cloudwatch")


def classify(endpoint: str, image: NDArray[np.uint8]) -> tuple[str, int]:
    """Which variant answered, and what digit it saw."""
    response = runtime_sm_client.invoke_endpoint(
        EndpointName=endpoint, **bodies.request(tensor("image", image[np.newaxis]))
    )
    digit = int(bodies.result(response).as_numpy("probabilities").argmax())
    return response["InvokedProductionVariant"], digit


def statistic(endpoint: str, variant: str, name: str, stat: str) -> float:
    """What CloudWatch knows of a variant since the program was started; 0 for nothing."""
    answer = cw_client.get_metric_data(
        MetricDataQueries=[
            {
                "Id": "q",
                "MetricStat": {
                    "Metric": {
                        "Namespace": "AWS/SageMaker",
                        "MetricName": name,
                        "Dimensions": [
                            {"Name": "EndpointName", "Value": endpoint},
                            {"Name": "VariantName", "Value": variant},
                        ],
                    },
                    "Period": 3600,
                    "Stat": stat,
                },
            }
        ],
        StartTime=datetime.now(UTC) - timedelta(minutes=30),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
    )
    return float(sum(answer["MetricDataResults"][0]["Values"]))


def wait(endpoint: str) -> dict[str, Any]:
    """The endpoint, once it is in service."""
    response: dict[str, Any] = sm_client.describe_endpoint(EndpointName=endpoint)
    while (status := response["EndpointStatus"]) in ("Creating", "Updating"):
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=endpoint)
    if status != "InService":
        raise SystemExit(f"{endpoint}: {status}: {response.get('FailureReason')}")
    return response


def await_copies(endpoint: str, count: int, metric: str = "ModelLatency") -> None:
    """Return once a metric of the shadow variant has so many values; that of the default has one for each answer."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := statistic(endpoint, "candidate", metric, "SampleCount")) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{metric} has {found:g} values, and {count} requests were copied")
        time.sleep(1)


def await_experiment(name: str, status: str) -> None:
    """Return once the experiment has come to a status."""
    shown = ""
    while shown != status:
        response = sm_client.describe_inference_experiment(Name=name)
        if response["Status"] != shown:
            shown = response["Status"]
            print(f"{name}: {shown}")
        if shown == "Cancelled":
            raise SystemExit(f"{name}: {response.get('StatusReason')}")
        time.sleep(1)


def as_configured(stamp: str, pictures: NDArray[np.uint8]) -> str:
    """A shadow variant by an endpoint configuration: the endpoint's name."""
    name = f"shadowed-{stamp}"
    variants = [
        {
            "InstanceType": "ml.m5.large",
            "InitialVariantWeight": 1,
            "InitialInstanceCount": 1,
            "ModelName": f"shadow-{variant}-{stamp}",
            "VariantName": variant,
        }
        for variant in ("current", "candidate")
    ]
    sm_client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=variants[:1], ShadowProductionVariants=variants[1:]
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    described = wait(name)
    [shadow] = described["ShadowProductionVariants"]
    print(f"{name}: InService; shadow variant: {shadow['VariantName']}, weight {shadow['CurrentWeight']:g}")

    answered = {classify(name, picture)[0] for picture in pictures}
    if answered != {"current"}:
        raise SystemExit(f"wrong variant: {answered} answered")
    await_copies(name, PICTURES)
    invoked, copied = (
        int(statistic(name, variant, "Invocations", "Sum")) for variant in ("current", "candidate")
    )
    print(f"invocations: current {invoked}, candidate {copied}")
    for variant in ("current", "candidate"):
        p50, p99 = (statistic(name, variant, "ModelLatency", each) / 1000 for each in ("p50", "p99"))
        print(f"latency of {variant}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")

    sm_client.update_endpoint_weights_and_capacities(
        EndpointName=name,
        DesiredWeightsAndCapacities=[{"VariantName": "candidate", "DesiredWeight": 0.25}],
    )
    wait(name)
    for picture in pictures:
        classify(name, picture)
    await_copies(name, PICTURES + 1)
    further = int(statistic(name, "candidate", "Invocations", "Sum")) - copied
    if not 0 < further < PICTURES / 2:
        raise SystemExit(f"wrong share: {further} of {PICTURES} requests were copied, at a weight of 0.25")
    print("with a weight of 0.25, about one request in four is copied")
    return name


def as_experiment(stamp: str, pictures: NDArray[np.uint8]) -> str:
    """A shadow variant by an inference experiment, which is promoted in the end: the endpoint's name."""
    endpoint, name = f"plain-{stamp}", f"try-candidate-{stamp}"
    variant = {
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        "ModelName": f"shadow-current-{stamp}",
        "VariantName": "current",
    }
    sm_client.create_endpoint_config(EndpointConfigName=endpoint, ProductionVariants=[variant])
    sm_client.create_endpoint(EndpointName=endpoint, EndpointConfigName=endpoint)
    wait(endpoint)
    sm_client.create_inference_experiment(
        Name=name,
        Type="ShadowMode",
        RoleArn=ROLE,
        EndpointName=endpoint,
        ModelVariants=[
            {
                "ModelName": f"shadow-{each}-{stamp}",
                "VariantName": each,
                "InfrastructureConfig": {
                    "InfrastructureType": "RealTimeInference",
                    "RealTimeInferenceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
                },
            }
            for each in ("current", "candidate")
        ],
        ShadowModeConfig={
            "SourceModelVariantName": "current",
            "ShadowModelVariants": [{"ShadowModelVariantName": "candidate", "SamplingPercentage": 100}],
        },
        Schedule={"EndTime": datetime.now(UTC) + timedelta(days=1)},
    )
    await_experiment(name, "Running")
    for picture in pictures:
        classify(endpoint, picture)
    agreement = "ShadowTopAgreement"  # which AWS has not
    await_copies(endpoint, PICTURES, agreement)
    same = statistic(endpoint, "candidate", agreement, "Average")
    print(f"pictures in which both see the same digit: {same:.0%}")

    sm_client.stop_inference_experiment(
        Name=name, ModelVariantActions={"current": "Remove", "candidate": "Promote"}
    )
    await_experiment(name, "Completed")
    answered, _ = classify(endpoint, pictures[0])
    if answered != "candidate":
        raise SystemExit(f"wrong variant: {answered} answered, though the candidate was promoted")
    print(f"{endpoint}: {answered} answers")
    sm_client.delete_inference_experiment(Name=name)
    return endpoint


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    s3_client.create_bucket(Bucket=BUCKET)
    for model in ("current", "candidate"):
        s3_client.upload_file(str(directory / "archives" / f"{model}.tar.gz"), BUCKET, f"{model}.tar.gz")
        container = {
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{BUCKET}/{model}.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
        }
        sm_client.create_model(
            ModelName=f"shadow-{model}-{stamp}", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
    pictures = read_pictures(directory)[0][-PICTURES:]
    names = [as_configured(stamp, pictures), as_experiment(stamp, pictures)]

    for name in names:
        described = sm_client.describe_endpoint(EndpointName=name)
        sm_client.delete_endpoint(EndpointName=name)
        sm_client.delete_endpoint_config(EndpointConfigName=described["EndpointConfigName"])
    for name in (f"plain-{stamp}", f"try-candidate-{stamp}"):  # those before, and in, the experiment
        for config in sm_client.list_endpoint_configs(NameContains=name)["EndpointConfigs"]:
            sm_client.delete_endpoint_config(EndpointConfigName=config["EndpointConfigName"])
    for model in ("current", "candidate"):
        sm_client.delete_model(ModelName=f"shadow-{model}-{stamp}")
        s3_client.delete_object(Bucket=BUCKET, Key=f"{model}.tar.gz")
    s3_client.delete_bucket(Bucket=BUCKET)
    print("deleted")


if __name__ == "__main__":
    main()
