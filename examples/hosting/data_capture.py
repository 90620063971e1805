"""What a classifier is asked and answers, captured: `python -m examples.hosting.data_capture [DIRECTORY]`.

Pictures go to an endpoint as JSON and as bytes; the records that are in the bucket a little later hold the same
pictures and the same answers. DIRECTORY is what `examples.hosting.build` has written. Where SageMaker is,
AWS_ENDPOINT_URL says. A file of records is complete after a minute, unless the host has other ideas
(`--capture-file-seconds=2`).
"""

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import tritonclient.http as triton
from numpy.typing import NDArray

from examples.answers import tensor
from examples.hosting import bodies
from examples.hosting.environment import check_environment
from examples.hosting.pictures import read_pictures

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
PICTURES = 10
PATIENCE_S = 300

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")


def wait(endpoint: str) -> dict[str, Any]:
    """The endpoint, once it is in service."""
    response: dict[str, Any] = sm_client.describe_endpoint(EndpointName=endpoint)
    while (status := response["EndpointStatus"]) == "Creating":
        time.sleep(10)
        response = sm_client.describe_endpoint(EndpointName=endpoint)
    if status != "InService":
        raise SystemExit(f"{endpoint}: {status}: {response.get('FailureReason')}")
    return response


def captured(bucket: str, prefix: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The keys of files with records, and the records."""
    result = s3_client.list_objects_v2(Bucket=bucket, Prefix=prefix)
    keys = [each["Key"] for each in result.get("Contents", ())]
    records = []
    for key in keys:
        text = s3_client.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        records += [json.loads(line) for line in text.splitlines()]
    return keys, records


def answered(record: dict[str, Any]) -> NDArray[np.float32]:
    """The probabilities in the response of a record."""
    output = record["captureData"]["endpointOutput"]
    if output["encoding"] == "JSON":
        (probabilities,) = json.loads(output["data"])["outputs"]
        return np.array(probabilities["data"], np.float32)
    header_length = int(output["observedContentType"].removeprefix(bodies.BINARY))
    result = triton.InferenceServerClient.parse_response_body(
        base64.b64decode(output["data"]), header_length=header_length
    )
    return np.array(result.as_numpy("probabilities")).reshape(-1)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    name = f"captured-{stamp}"
    bucket, prefix = "hosting-data-capture", "datacapture"
    s3_client.create_bucket(Bucket=bucket)
    s3_client.upload_file(str(directory / "archives" / "current.tar.gz"), bucket, "current.tar.gz")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{bucket}/current.tar.gz",
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
                "VariantName": "AllTraffic",
            }
        ],
        DataCaptureConfig={
            "EnableCapture": True,
            "InitialSamplingPercentage": 100,
            "DestinationS3Uri": f"s3://{bucket}/{prefix}",
            "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
            "CaptureContentTypeHeader": {
                "CsvContentTypes": ["text/csv"],
                "JsonContentTypes": ["application/json"],
            },
        },
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    capture = wait(name)["DataCaptureConfig"]
    print(f"{name}: capture is {capture['CaptureStatus']}, of {capture['CurrentSamplingPercentage']} %")

    answers = {}
    pictures = read_pictures(directory)[0][-PICTURES:]
    for number, picture in enumerate(pictures):
        for kind in ("json", "bytes"):
            identifier = f"{kind}-{number}"
            image = {"name": "image", "datatype": "UINT8", "shape": [1, 8, 8], "data": picture.tolist()}
            request = (
                {"ContentType": "application/json", "Body": json.dumps({"inputs": [image]})}
                if kind == "json"
                else bodies.request(tensor("image", picture[np.newaxis]))
            )
            response = runtime_sm_client.invoke_endpoint(EndpointName=name, InferenceId=identifier, **request)
            if kind == "json":
                (output,) = json.loads(response["Body"].read())["outputs"]
                answers[identifier] = np.array(output["data"], np.float32)
            else:
                answers[identifier] = np.array(bodies.result(response).as_numpy("probabilities").reshape(-1))

    print("waiting for captures to show up")
    deadline = time.monotonic() + PATIENCE_S
    keys, records = captured(bucket, f"{prefix}/{name}")
    while len(records) < len(answers):
        if time.monotonic() > deadline:
            raise SystemExit(f"wrong number of records: {len(records)} of {len(answers)}")
        time.sleep(1)
        keys, records = captured(bucket, f"{prefix}/{name}")
    for record in records:
        identifier = record["eventMetadata"]["inferenceId"]
        if not np.array_equal(answered(record), answers[identifier]):
            raise SystemExit(f"wrong record: it has another answer than {identifier} had")
    encodings = sorted({record["captureData"]["endpointInput"]["encoding"] for record in records})
    print(f"{len(records)} records, encoded as {' and '.join(encodings)}, with the answers that were given")

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    for key in (*keys, "current.tar.gz"):
        s3_client.delete_object(Bucket=bucket, Key=key)
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
