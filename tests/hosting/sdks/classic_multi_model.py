"""What users of the SageMaker Python SDK write: many models, deployed."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker.deserializers import JSONDeserializer
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

digits, ensemble, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = sagemaker.Session()
role = sagemaker.get_execution_role()
image = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
models = MultiDataModel(
    name="classic-many",
    model_data_prefix=f"s3://{session.default_bucket()}/classic-many/",
    image_uri=image,
    role=role,
    sagemaker_session=session,
)
models.deploy(initial_instance_count=1, instance_type="ml.m5.large", endpoint_name="classic-many")

models.add_model(str(digits), "digits.tar.gz")
data = session.upload_data(str(ensemble), key_prefix="elsewhere")
models.add_model(data, "ensembles/read_digit.tar.gz")
said |= {"models": sorted(models.list_models())}

predictor = Predictor("classic-many", session, serializer=JSONSerializer(), deserializer=JSONDeserializer())
request = json.loads(picture.read_text())
answers = [
    predictor.predict(request, target_model=target)
    for target in ("digits.tar.gz", "ensembles/read_digit.tar.gz")
]
probabilities = answers[0]["outputs"][0]["data"]
said |= {"digit": probabilities.index(max(probabilities)), "word": answers[1]["outputs"][0]["data"][0]}
try:
    predictor.predict(request, target_model="missing.tar.gz")
except session.sagemaker_runtime_client.exceptions.ValidationError as error:
    said |= {"missing": error.response["Error"]["Message"]}

predictor.delete_model()
predictor.delete_endpoint()
left = [
    *session.sagemaker_client.list_models(NameContains="classic-many")["Models"],
    *session.sagemaker_client.list_endpoint_configs(NameContains="classic-many")["EndpointConfigs"],
]
said |= {"left": len(left)}
result.write_text(json.dumps(said))
