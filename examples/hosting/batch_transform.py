"""Requests in files, answered without an endpoint: `python -m examples.hosting.batch_transform [DIRECTORY]`.

DIRECTORY is what `examples.hosting.build` has written. Where SageMaker is, AWS_ENDPOINT_URL says.
"""

import json
import sys
import time
from pathlib import Path

import boto3

from examples.hosting.environment import check_environment
from examples.hosting.pictures import read_pictures

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FILES = 4

check_environment()
sm_client = boto3.client("sagemaker")
s3_client = boto3.client("s3")


def line(number: int, pixels: list[list[int]]) -> str:
    """A request for one picture; `id` says which."""
    tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 8, 8], "data": pixels}
    return json.dumps({"id": str(number), "inputs": [tensor]})


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("read-digits-%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-batch-transform"
    s3_client.create_bucket(Bucket=bucket)
    s3_client.upload_file(str(directory / "archives" / "read_digit.tar.gz"), bucket, "read_digit.tar.gz")

    pictures, targets = read_pictures(directory)
    lines = [line(number, image.tolist()) for number, image in enumerate(pictures)]
    for file in range(FILES):
        body = "\n".join(lines[file::FILES])
        s3_client.put_object(Bucket=bucket, Key=f"pictures/{file}.jsonl", Body=body.encode())

    sm_client.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": f"s3://{bucket}/read_digit.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
        },
    )
    sm_client.create_transform_job(
        TransformJobName=name,
        ModelName=name,
        MaxConcurrentTransforms=8,
        BatchStrategy="SingleRecord",
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/pictures/"}},
            "ContentType": "application/json",
            "SplitType": "Line",
        },
        TransformOutput={
            "S3OutputPath": f"s3://{bucket}/words",
            "Accept": "application/json",
            "AssembleWith": "Line",
        },
        # of the request its id is kept, and of the answer the word
        DataProcessing={"JoinSource": "Input", "OutputFilter": "$['id','SageMakerOutput']"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )
    sm_client.get_waiter("transform_job_completed_or_stopped").wait(
        TransformJobName=name, WaiterConfig={"Delay": 5, "MaxAttempts": 60}
    )
    job = sm_client.describe_transform_job(TransformJobName=name)
    print(f"{name}: {job['TransformJobStatus']}")

    right = count = 0
    for file in range(FILES):
        output = s3_client.get_object(Bucket=bucket, Key=f"words/{file}.jsonl.out")["Body"].read().decode()
        for each in output.splitlines():
            record = json.loads(each)
            word = record["SageMakerOutput"]["outputs"][0]["data"][0]
            right += word == WORDS[targets[int(record["id"])]]
            count += 1
    print(f"right: {right} of {count}")
    if count != len(lines) or right < 0.9 * count:
        raise SystemExit("pictures are missing, or read wrong")

    sm_client.delete_model(ModelName=name)
    for entry in s3_client.list_objects_v2(Bucket=bucket)["Contents"]:
        s3_client.delete_object(Bucket=bucket, Key=entry["Key"])
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


if __name__ == "__main__":
    main()
