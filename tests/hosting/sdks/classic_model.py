"""What users of the SageMaker Python SDK write: a model, deployed."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = sagemaker.Session()
role = get_execution_role()
bucket = session.default_bucket()
said |= {"role": role, "bucket": bucket, "account": session.account_id()}

data = session.upload_data(str(archive), key_prefix="classic-model")
image = sagemaker.image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)


def model(name: str) -> Model:
    return Model(
        image_uri=image,
        model_data=data,
        role=role,
        predictor_cls=Predictor,
        sagemaker_session=session,
        name=name,
        env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
    )


deployed = model("classic-model")
predictor = deployed.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="classic-model",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
)
answer = predictor.predict(json.loads(picture.read_text()))
said |= {"word": answer["outputs"][0]["data"][0]}

# a second deployment of the same name: the SDK knows by the text of the error that the model is there
again = model("classic-model")
session.create_model("classic-model", role, again.prepare_container_def())
try:
    again.deploy(initial_instance_count=1, instance_type="ml.m5.large", endpoint_name="classic-model")
except Exception as error:
    said |= {"again": str(error)}

# a model without a class of predictors: its endpoint is invoked by its name
plain = Model(image_uri=image, model_data=data, role=role, env=deployed.env)
said |= {"predictor": plain.deploy(1, "ml.m5.large", endpoint_name="classic-plain")}
answer = session.sagemaker_runtime_client.invoke_endpoint(
    EndpointName="classic-plain", ContentType="application/octet-stream", Body=picture.read_text()
)
said |= {"plain": json.loads(answer["Body"].read())["outputs"][0]["data"][0]}
session.sagemaker_client.delete_endpoint(EndpointName="classic-plain")

said |= {"there": [session.endpoint_in_service_or_not(name) for name in ("classic-model", "missing")]}
predictor.delete_endpoint()
deployed.delete_model()
sagemaker_client = session.sagemaker_client
left = [
    *sagemaker_client.list_models(NameContains="classic-model")["Models"],
    *sagemaker_client.list_endpoint_configs(NameContains="classic-model")["EndpointConfigs"],
]
said |= {"left": len(left)}
result.write_text(json.dumps(said))
