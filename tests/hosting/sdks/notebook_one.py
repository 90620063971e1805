"""The calls of published notebooks that deploy one Triton model: boto3 for endpoints, the SDK for the session."""

import json
import sys
import time
from pathlib import Path

import boto3
import numpy as np
import tritonclient.http as httpclient

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.sdk import Session, get_execution_role

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()

sess = boto3.Session()
sagemaker_session = Session(boto_session=sess)
role = get_execution_role(sagemaker_session=sagemaker_session)
sm_client = sess.client(service_name="sagemaker")
runtime = sess.client("sagemaker-runtime")
account = sess.client("sts").get_caller_identity()["Account"]
region = boto3.Session().region_name
said |= {"role": role, "account": account, "bucket": sagemaker_session.default_bucket()}

data = sagemaker_session.upload_data(path=str(archive), key_prefix="notebook")
suffix = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime())
name = f"notebook-{suffix}"
created = sm_client.create_model(
    ModelName=name,
    ExecutionRoleArn=role,
    PrimaryContainer={
        "Image": f"785573368785.dkr.ecr.{region}.amazonaws.com/sagemaker-tritonserver:23.02-py3",
        "ModelDataUrl": data,
        "Environment": {
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit",
            "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": "16777216000",
            "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE": "10485760",
            "SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT": "10",
            "SAGEMAKER_TRITON_THREAD_COUNT": "10",
            "SAGEMAKER_TRITON_LOG_VERBOSE": "true",
        },
    },
)
said |= {"model": created["ModelArn"] == f"arn:aws:sagemaker:{region}:{account}:model/{name}"}
sm_client.create_endpoint_config(
    EndpointConfigName=name,
    ProductionVariants=[
        {
            "InstanceType": "ml.m5.large",
            "InitialVariantWeight": 1,
            "InitialInstanceCount": 1,
            "ModelName": name,
            "VariantName": "AllTraffic",
            "VolumeSizeInGB": 200,
            "ModelDataDownloadTimeoutInSeconds": 600,
            "ContainerStartupHealthCheckTimeoutInSeconds": 600,
        }
    ],
)
sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
status = "Creating"
while status == "Creating":
    time.sleep(60)  # sleeps: as the notebooks do, at most a second here
    status = sm_client.describe_endpoint(EndpointName=name)["EndpointStatus"]
said |= {"status": status}

payload = json.loads(picture.read_text())
answer = runtime.invoke_endpoint(
    EndpointName=name, ContentType="application/octet-stream", Body=json.dumps(payload)
)
said |= {"json": json.loads(answer["Body"].read().decode("utf8"))["outputs"][0]["data"][0]}

image = httpclient.InferInput("image", [1, 8, 8], "UINT8")
image.set_data_from_numpy(np.array(payload["inputs"][0]["data"], np.uint8).reshape(1, 8, 8), binary_data=True)
word = httpclient.InferRequestedOutput("word", binary_data=True)
body, length = httpclient.InferenceServerClient.generate_request_body([image], outputs=[word])
answer = runtime.invoke_endpoint(
    EndpointName=name,
    ContentType=f"application/vnd.sagemaker-triton.binary+json;json-header-size={length}",
    Body=body,
)
length = int(
    answer["ContentType"].removeprefix("application/vnd.sagemaker-triton.binary+json;json-header-size=")
)
parsed = httpclient.InferenceServerClient.parse_response_body(answer["Body"].read(), header_length=length)
said |= {"binary": parsed.as_numpy("word").ravel()[0].decode()}

sm_client.delete_endpoint(EndpointName=name)
sm_client.delete_endpoint_config(EndpointConfigName=name)
sm_client.delete_model(ModelName=name)
sess.client("s3").download_file(
    sagemaker_session.default_bucket(), f"notebook/{archive.name}", str(result.with_suffix(".tar.gz"))
)
said |= {"downloaded": result.with_suffix(".tar.gz").read_bytes() == archive.read_bytes()}
result.write_text(json.dumps(said))
