"""What users of sagemaker-core write: an inference experiment. Its own `stop` asks for attributes that it lacks."""

import json
import sys
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.core import resources, session_helper, shapes

archive, picture, result = map(Path, sys.argv[1:])
use_host()
session = session_helper.Session()
role = session_helper.get_execution_role(session)
data = session.upload_data(str(archive), key_prefix="experiment")
image = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
model = resources.Model.create(
    model_name="experiment",
    primary_container=shapes.ContainerDefinition(
        image=image,
        model_data_url=data,
        environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
    ),
    execution_role_arn=role,
)
production = shapes.ProductionVariant(
    variant_name="current", model_name="experiment", initial_instance_count=1, instance_type="ml.m5.large"
)
resources.EndpointConfig.create(endpoint_config_name="experiment", production_variants=[production])
endpoint = resources.Endpoint.create(endpoint_name="experiment", endpoint_config_name="experiment")
endpoint.wait_for_status("InService")

infrastructure = shapes.ModelInfrastructureConfig(
    infrastructure_type="RealTimeInference",
    real_time_inference_config=shapes.RealTimeInferenceConfig(instance_type="ml.m5.large", instance_count=1),
)
experiment = resources.InferenceExperiment.create(
    name="core",
    type="ShadowMode",
    role_arn=role,
    endpoint_name="experiment",
    model_variants=[
        shapes.ModelVariantConfig(
            model_name="experiment", variant_name=name, infrastructure_config=infrastructure
        )
        for name in ("current", "candidate")
    ],
    shadow_mode_config=shapes.ShadowModeConfig(
        source_model_variant_name="current",
        shadow_model_variants=[
            shapes.ShadowModelVariantConfig(shadow_model_variant_name="candidate", sampling_percentage=100)
        ],
    ),
)
experiment.wait_for_status("Running")
answer = json.loads(endpoint.invoke(body=picture.read_text(), content_type="application/json").body.read())
said: dict[str, object] = {"word": answer["outputs"][0]["data"][0]}
experiment.update(description="the same model twice")
said["description"] = resources.InferenceExperiment.get("core").description
said["experiments"] = [each.name for each in resources.InferenceExperiment.get_all(status_equals="Running")]
shadows = resources.Endpoint.get("experiment").shadow_production_variants
said["shadows"] = [shadow.variant_name for shadow in shadows]
boto3.client("sagemaker").stop_inference_experiment(
    Name="core", ModelVariantActions={"current": "Retain", "candidate": "Remove"}
)
experiment.wait_for_status("Completed")
experiment.delete()
try:
    resources.InferenceExperiment.get("core")
except ClientError as error:
    said["gone"] = error.response["Error"]["Code"]

endpoint.delete()
endpoint.wait_for_delete()
model.delete()
result.write_text(json.dumps(said))
