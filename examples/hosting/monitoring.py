"""A classifier whose pictures have changed, noticed: `python -m examples.hosting.monitoring [DIRECTORY]`.

Data capture is on, a baseline is made of usual pictures, and a monitoring schedule looks at what came after them,
when every second picture was half as bright. The violations are printed, and the report is saved as
`drift-report.html` in DIRECTORY, which is what `examples.hosting.build` has written. Where SageMaker is,
AWS_ENDPOINT_URL says. A file of records is complete after a minute, unless the host has other ideas
(`--capture-file-seconds=2`).

The baseline is what `halimede baseline` writes, which a processing job with SageMaker's image does on AWS.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterable
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
MONITOR_IMAGE = "156813124566.dkr.ecr.us-east-1.amazonaws.com/sagemaker-model-monitor-analyzer"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
BUCKET = "hosting-monitoring"
PICTURES = 400
PATIENCE_S = 600

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")
cloudwatch_client = boto3.client("cloudwatch")


def deploy(name: str, archive: Path) -> None:
    """An endpoint of which everything is captured."""
    s3_client.create_bucket(Bucket=BUCKET)
    s3_client.upload_file(str(archive), BUCKET, "digits.tar.gz")
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/digits.tar.gz",
        "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
    }
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        "ModelName": name,
        "VariantName": "AllTraffic",
    }
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": f"s3://{BUCKET}/captured",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    sm_client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant], DataCaptureConfig=capture
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)
    print(f"{name}: InService", flush=True)


def ask(name: str, pictures: Iterable[NDArray[np.uint8]]) -> None:
    """Invoke the endpoint with each picture."""
    for picture in pictures:
        request = bodies.request(tensor("image", picture[np.newaxis]))
        runtime_sm_client.invoke_endpoint(EndpointName=name, **request)["Body"].read()


def captured(name: str) -> int:
    """How many records are in the bucket."""
    count = 0
    for page in s3_client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix=f"captured/{name}/"
    ):
        for each in page.get("Contents", ()):
            count += s3_client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read().count(b"\n")
    return count


def wait_for_captures(name: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while captured(name) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {count} records")
        time.sleep(1)


def monitor(name: str, since: float) -> dict[str, Any]:
    """The execution of a schedule that runs once over what came since a time."""
    baseline = f"s3://{BUCKET}/baseline"
    sm_client.create_data_quality_job_definition(
        JobDefinitionName=name,
        DataQualityBaselineConfig={
            "ConstraintsResource": {"S3Uri": f"{baseline}/constraints.json"},
            "StatisticsResource": {"S3Uri": f"{baseline}/statistics.json"},
        },
        DataQualityAppSpecification={"ImageUri": MONITOR_IMAGE},
        DataQualityJobInput={
            "EndpointInput": {"EndpointName": name, "LocalPath": "/opt/ml/processing/input/endpoint"}
        },
        DataQualityJobOutputConfig={
            "MonitoringOutputs": [
                {
                    "S3Output": {
                        "S3Uri": f"s3://{BUCKET}/reports",
                        "LocalPath": "/opt/ml/processing/output",
                        "S3UploadMode": "EndOfJob",
                    }
                }
            ]
        },
        JobResources={
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.xlarge", "VolumeSizeInGB": 20}
        },
        RoleArn=ROLE,
    )
    sm_client.create_monitoring_schedule(
        MonitoringScheduleName=name,
        MonitoringScheduleConfig={
            "ScheduleConfig": {
                "ScheduleExpression": "NOW",
                "DataAnalysisStartTime": f"-PT{math.ceil(time.time() - since) + 1}S",
                "DataAnalysisEndTime": "-PT0S",
            },
            "MonitoringJobDefinitionName": name,
            "MonitoringType": "DataQuality",
        },
    )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        executions = sm_client.list_monitoring_executions(MonitoringScheduleName=name)
        for execution in executions["MonitoringExecutionSummaries"]:
            if execution["MonitoringExecutionStatus"] not in ("Pending", "InProgress"):
                found: dict[str, Any] = execution
                return found
        time.sleep(1)
    raise SystemExit("waited in vain for the execution")


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    name = time.strftime("monitored-%Y-%m-%d-%H-%M-%S")
    deploy(name, directory / "archives" / "current.tar.gz")
    pictures, _ = read_pictures(directory)

    ask(name, pictures[:PICTURES])
    wait_for_captures(name, PICTURES)
    command = ["baseline", "--endpoint", name, "--output", f"s3://{BUCKET}/baseline"]
    subprocess.run([sys.executable, "-m", "halimede", *command], check=True)

    since = time.time()
    dimmed = pictures[PICTURES : 2 * PICTURES].copy()
    dimmed[::2] //= 2
    ask(name, dimmed)
    wait_for_captures(name, 2 * PICTURES)
    execution = monitor(name, since)
    print(
        f"execution: {execution['MonitoringExecutionStatus']} {execution.get('FailureReason', '')}".rstrip()
    )

    job = sm_client.describe_processing_job(ProcessingJobName=execution["ProcessingJobArn"].split("/")[-1])
    output = job["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
    prefix = output.removeprefix(f"s3://{BUCKET}/")
    violations = s3_client.get_object(Bucket=BUCKET, Key=f"{prefix}/constraint_violations.json")[
        "Body"
    ].read()
    for violation in json.loads(violations)["violations"]:
        print(
            f"{violation['feature_name']}: {violation['constraint_check_type']}: {violation['description']}"
        )
    s3_client.download_file(BUCKET, f"{prefix}/report.html", str(directory / "drift-report.html"))
    metrics = cloudwatch_client.list_metrics(
        Namespace="/aws/sagemaker/Endpoints/data-metrics",
        Dimensions=[{"Name": "MonitoringSchedule", "Value": name}],
    )["Metrics"]
    print(f"metrics: {len(metrics)}, such as {sorted(each['MetricName'] for each in metrics)[0]}")

    sm_client.delete_monitoring_schedule(MonitoringScheduleName=name)
    sm_client.delete_data_quality_job_definition(JobDefinitionName=name)
    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    for page in s3_client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for each in page.get("Contents", ()):
            s3_client.delete_object(Bucket=BUCKET, Key=each["Key"])
    s3_client.delete_bucket(Bucket=BUCKET)
    print("deleted")


if __name__ == "__main__":
    main()
