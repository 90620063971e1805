"""What users of SDK 3 write: a model that `ModelBuilder` builds and deploys."""

import json
import sys
from pathlib import Path

import boto3
from sagemaker.core import image_uris, resources
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.core.inference_config import AsyncInferenceConfig
from sagemaker.core.s3 import S3Downloader, S3Uploader
from sagemaker.serve import ModelBuilder
from sagemaker.serve.batch_inference.batch_transform_inference_config import BatchTransformInferenceConfig

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = Session(boto_session=boto3.Session())
data = session.upload_data(str(archive), key_prefix="builder")
image = image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)


def builder(role: str | None) -> ModelBuilder:
    return ModelBuilder(
        image_uri=image,
        s3_model_data_url=data,
        env_vars={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
        instance_type="ml.m5.large",
        role_arn=role,
        sagemaker_session=session,
    )


def word(endpoint: resources.Endpoint) -> object:
    """What a model answers."""
    answer = endpoint.invoke(body=picture.read_text(), content_type="application/json")
    return json.loads(answer.body.read())["outputs"][0]["data"][0]


arn = get_execution_role(session)
given = builder(arn)
model = given.build(model_name="builder")
said |= {"role": model.execution_role_arn, "url": model.primary_container.model_data_url == data}
endpoint = given.deploy(endpoint_name="builder")
said |= {"status": endpoint.endpoint_status, "word": word(endpoint)}

# the SDK asks for the role of a name, and for one that it may use if none is given
for name, role in {"named": "analyst", "none": None}.items():
    said |= {name: builder(role).build(model_name=f"builder-{name}").execution_role_arn}

# a model behind a queue
queued = builder(arn)
queued.build(model_name="builder-queued")
results = f"s3://{session.default_bucket()}/results"
later = queued.deploy(
    endpoint_name="builder-queued", inference_config=AsyncInferenceConfig(output_path=results)
)
request = S3Uploader.upload_string_as_file_body(
    picture.read_text(), f"{results}/digit.json", sagemaker_session=session
)
accepted = later.invoke_async(input_location=request, content_type="application/json")
bucket, _, key = accepted.output_location.removeprefix("s3://").partition("/")
session.s3_client.get_waiter("object_exists").wait(Bucket=bucket, Key=key)
answer = json.loads(session.s3_client.get_object(Bucket=bucket, Key=key)["Body"].read())
said |= {"later": answer["outputs"][0]["data"][0]}

# objects of a bucket, as a job
batch = builder(arn)
batch.build(model_name="builder-batch")
transformer = batch.deploy(
    inference_config=BatchTransformInferenceConfig(
        instance_count=1, instance_type="ml.m5.large", output_path=f"{results}/words"
    )
)
transformer.transform(request, content_type="application/json", wait=True, logs=True)
words = S3Downloader.read_file(f"{results}/words/digit.json.out", sagemaker_session=session)
said |= {"transformed": json.loads(words)["outputs"][0]["data"][0]}

for each in (endpoint, later):
    each.delete()
    each.wait_for_delete()
for config in resources.EndpointConfig.get_all(name_contains="builder"):
    config.delete()
for made in resources.Model.get_all(name_contains="builder"):
    made.delete()
said |= {"left": len(list(resources.Model.get_all(name_contains="builder")))}
result.write_text(json.dumps(said))
