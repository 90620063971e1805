"""An ensemble on an endpoint of its own: `python -m examples.hosting.single_model [DIRECTORY]`.

DIRECTORY is what `examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.
"""

import json
import sys
import time
from pathlib import Path

import boto3
import numpy as np

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("read-digit-%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-single-model"
    s3_client.create_bucket(Bucket=bucket)
    s3_client.upload_file(str(directory / "archives" / "read_digit.tar.gz"), bucket, "read_digit.tar.gz")

    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{bucket}/read_digit.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
    }
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

    payload = (directory / "digit.json").read_text()
    response = runtime_sm_client.invoke_endpoint(
        EndpointName=name, ContentType="application/octet-stream", Body=payload
    )
    as_json = json.loads(response["Body"].read())["outputs"][0]["data"][0]
    print(f"as JSON: {as_json}")

    image = np.fromfile(directory / "digit.bin", np.uint8).reshape(1, 8, 8)
    response = runtime_sm_client.invoke_endpoint(EndpointName=name, **bodies.request(tensor("image", image)))
    as_bytes = bodies.result(response).as_numpy("word")[0, 0].decode()
    print(f"as bytes: {as_bytes}")
    if (as_json, as_bytes) != ("seven", "seven"):
        raise SystemExit("wrong answer: the picture shows a seven")

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    s3_client.delete_object(Bucket=bucket, Key="read_digit.tar.gz")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
