"""What users of the SageMaker Python SDK see of a model that does not load."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker.model import Model

from halimede.sagemaker_sdk import use_host

archive, _, result = map(Path, sys.argv[1:])
use_host()
session = sagemaker.Session()
model = Model(
    image_uri=sagemaker.image_uris.retrieve(
        "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
    ),
    model_data=session.upload_data(str(archive), key_prefix="classic-failure"),
    role=sagemaker.get_execution_role(),
    sagemaker_session=session,
    name="classic-failure",
    env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "no_such_model"},
)
said: dict[str, str] = {}
try:
    model.deploy(initial_instance_count=1, instance_type="ml.m5.large", endpoint_name="classic-failure")
except Exception as error:
    said |= {"error": type(error).__name__, "text": str(error)}
result.write_text(json.dumps(said))
