"""What users of sagemaker-core write: resources."""

import json
import sys
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.core import resources, session_helper, shapes

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = session_helper.Session(boto_session=boto3.Session())
role = session_helper.get_execution_role(session)
data = session.upload_data(str(archive), key_prefix="core")
image = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"

model = resources.Model.create(
    model_name="core",
    primary_container=shapes.ContainerDefinition(
        image=image,
        model_data_url=data,
        environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
    ),
    execution_role_arn=role,
)
config = resources.EndpointConfig.create(
    endpoint_config_name="core",
    production_variants=[
        shapes.ProductionVariant(
            variant_name="AllTraffic",
            model_name="core",
            initial_instance_count=1,
            instance_type="ml.m5.large",
        )
    ],
)
endpoint = resources.Endpoint.create(endpoint_name="core", endpoint_config_name="core")
endpoint.wait_for_status("InService")
answer = json.loads(endpoint.invoke(body=picture.read_text(), content_type="application/json").body.read())
said |= {"role": role, "word": answer["outputs"][0]["data"][0]}
names = [each.endpoint_name for each in resources.Endpoint.get_all(name_contains="core")]
said |= {"endpoints": names}

endpoint.update_weights_and_capacities([{"variant_name": "AllTraffic", "desired_instance_count": 2}])
endpoint.wait_for_status("InService")
counts = [variant.current_instance_count for variant in resources.Endpoint.get("core").production_variants]
said |= {"instances": counts}

endpoint.delete()
endpoint.wait_for_delete()
config.delete()
model.delete()
try:
    resources.Model.get("core")
except ClientError as error:
    said |= {"gone": error.response["Error"]["Message"]}
result.write_text(json.dumps(said))
