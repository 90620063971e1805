"""What users of the SageMaker Python SDK write: a model behind a queue."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.async_inference import AsyncInferenceConfig, WaiterConfig
from sagemaker.deserializers import JSONDeserializer
from sagemaker.exceptions import AsyncInferenceModelError
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = sagemaker.Session()
data = session.upload_data(str(archive), key_prefix="classic-async")
image = sagemaker.image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)
model = Model(
    image_uri=image,
    model_data=data,
    role=get_execution_role(),
    predictor_cls=Predictor,
    sagemaker_session=session,
    name="classic-async",
    env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="classic-async",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
    async_inference_config=AsyncInferenceConfig(max_concurrent_invocations_per_instance=2),
)
said |= {"predictor": type(predictor).__name__}
patience = WaiterConfig(max_attempts=100, delay=1)
request = json.loads(picture.read_text())
said |= {"word": predictor.predict(request, waiter_config=patience)["outputs"][0]["data"][0]}
later = predictor.predict_async(request)
said |= {"later": later.get_result(patience)["outputs"][0]["data"][0]}
try:
    predictor.predict({"inputs": []}, waiter_config=patience)
except AsyncInferenceModelError as error:
    said |= {"failure": str(error)}
predictor.delete_endpoint()
result.write_text(json.dumps(said))
