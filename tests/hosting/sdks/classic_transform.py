"""What users of the SageMaker Python SDK write: a transform job of a model, waited for with its logs."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.model import Model
from sagemaker.s3 import S3Downloader, S3Uploader
from sagemaker.transformer import Transformer

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
use_host()
session = sagemaker.Session()
bucket = session.default_bucket()

data = session.upload_data(str(archive), key_prefix="classic-transform")
image = sagemaker.image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)
model = Model(
    image_uri=image,
    model_data=data,
    role=get_execution_role(),
    sagemaker_session=session,
    name="classic-transform",
    env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
)
transformer = model.transformer(
    instance_count=1,
    instance_type="ml.m5.large",
    strategy="SingleRecord",
    assemble_with="Line",
    accept="application/json",
    output_path=f"s3://{bucket}/words",
    max_concurrent_transforms=2,
    max_payload=1,
)
line = json.dumps(json.loads(picture.read_text()))
source = S3Uploader.upload_string_as_file_body(
    f"{line}\n{line}\n", f"s3://{bucket}/pictures/two.jsonl", sagemaker_session=session
)
transformer.transform(
    f"s3://{bucket}/pictures",
    job_name="classic-transform",
    content_type="application/json",
    split_type="Line",
    output_filter="$.outputs[0].data[0]",
    wait=True,
    logs=True,
)
output = S3Downloader.read_file(f"s3://{bucket}/words/two.jsonl.out", sagemaker_session=session)
attached = Transformer.attach("classic-transform", sagemaker_session=session)
failed = ""
try:
    transformer.transform(
        f"s3://{bucket}/nothing", job_name="classic-nothing", content_type="text/csv", logs=False
    )
except Exception as error:
    failed = f"{type(error).__name__}: {error}"
transformer.delete_model()
result.write_text(
    json.dumps(
        {
            "output": output,
            "failed": failed,
            "attached": [attached.output_path, attached.instance_count, attached.max_concurrent_transforms],
        }
    )
)
