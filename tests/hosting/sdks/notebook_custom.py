"""The calls of published notebooks whose image is of their own registry, invoked from threads; and what no host has."""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.sdk import ScriptProcessor, Session

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()

region = boto3.Session(region_name="us-east-1").region_name
sm_client = boto3.client(service_name="sagemaker", region_name=region)
session = Session(boto_session=boto3.Session())
account = boto3.client("sts").get_caller_identity().get("Account")
role = f"arn:aws:iam::{account}:role/AmazonSageMaker-ExecutionRole-custom"
bucket, prefix = Session().default_bucket(), "notebook-custom"
s3 = boto3.client("s3")
for number in range(3):
    with archive.open("rb") as file:
        s3.upload_fileobj(file, bucket, f"{prefix}/model-v{number}.tar.gz")
listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]
said |= {"listed": [each["Key"].rpartition("/")[2] for each in listed]}
first = session.upload_data(str(archive), bucket=bucket, key_prefix=prefix)
said |= {"prefix": first.rpartition("/")[0] == f"s3://{bucket}/{prefix}"}

name = "notebook-custom"
container = {
    "Image": f"{session.account_id()}.dkr.ecr.{region}.amazonaws.com/triton/custom:0.0.1",
    "ModelDataUrl": f"s3://{bucket}/{prefix}/",
    "Mode": "MultiModel",
    "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "digits"},
}
sm_client.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
variant = {
    "InstanceType": "ml.g4dn.2xlarge",
    "InitialVariantWeight": 1,
    "InitialInstanceCount": 1,
    "ModelName": name,
    "VariantName": "AllTraffic",
}
sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)


def invoke(number: int) -> int:
    """The digit that a model sees, asked for with a client that is made for it."""
    retries = {"max_attempts": 2, "mode": "standard"}
    client = boto3.client(
        "sagemaker-runtime",
        region_name=region,
        config=Config(connect_timeout=5, read_timeout=60, retries=retries),
    )
    answer = client.invoke_endpoint(
        EndpointName=name,
        ContentType="application/json",
        Body=picture.read_text(),
        TargetModel=f"model-v{number % 3}.tar.gz",
    )
    data = json.loads(answer["Body"].read().decode("utf-8"))["outputs"][0]["data"]
    return int(data.index(max(data)))


with ThreadPoolExecutor(max_workers=4) as pool:
    said |= {"digits": list(pool.map(invoke, range(12)))}

sm_client.delete_model(ModelName=name)
sm_client.delete_endpoint_config(EndpointConfigName=name)
sm_client.delete_endpoint(EndpointName=name)

# what the host does not have is refused by its name
specification = {"Containers": [{"Image": container["Image"]}], "SupportedContentTypes": ["text/csv"]}
processor = ScriptProcessor(
    image_uri=container["Image"],
    command=["python3"],
    instance_type="ml.g4dn.xlarge",
    instance_count=1,
    base_job_name="compile",
    role=role,
    sagemaker_session=session,
)
script = result.with_suffix(".py")
script.write_text("")
refused: dict[str, Callable[[], object]] = {
    "package": lambda: sm_client.create_model_package(
        ModelPackageGroupName=name,
        InferenceSpecification={**specification, "SupportedResponseMIMETypes": ["application/json"]},
    ),
    "recommendations": lambda: sm_client.create_inference_recommendations_job(
        JobName=name, JobType="Advanced", RoleArn=role, InputConfig={"ModelName": name}
    ),
    "processing": lambda: processor.run(code=str(script), wait=False),
    "registry": lambda: boto3.client("ecr", region_name=region).create_repository(
        repositoryName="triton/custom"
    ),
    "sample": lambda: s3.download_file("sagemaker-sample-files", "datasets/image/pets/dog.jpg", str(script)),
}
for what, call in refused.items():
    try:
        call()
    except ClientError as error:
        said |= {what: error.response["Error"]["Message"].partition("; ")[0].partition(". ")[0]}
result.write_text(json.dumps(said))
