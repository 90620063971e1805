"""What users of the SageMaker Python SDK write: a model, deployed with data capture."""

import json
import sys
import time
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.model_monitor import DataCaptureConfig
from sagemaker.predictor import Predictor
from sagemaker.s3 import S3Downloader
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

archive, picture, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()
session = sagemaker.Session()
role = get_execution_role()
destination = f"s3://{session.default_bucket()}/captured"
image = sagemaker.image_uris.retrieve(
    "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
)
model = Model(
    image_uri=image,
    model_data=session.upload_data(str(archive), key_prefix="classic-capture"),
    role=role,
    predictor_cls=Predictor,
    sagemaker_session=session,
    name="classic-capture",
    env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "read_digit"},
)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="classic-capture",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
    data_capture_config=DataCaptureConfig(
        enable_capture=True, sampling_percentage=100, destination_s3_uri=destination
    ),
)
answer = predictor.predict(json.loads(picture.read_text()))

files: list[str] = []
while not files:
    time.sleep(0.2)  # sleeps: as users' scripts do
    files = S3Downloader.list(f"{destination}/classic-capture/AllTraffic", sagemaker_session=session)
(line,) = S3Downloader.read_file(files[0], sagemaker_session=session).splitlines()
record = json.loads(line)
said |= {
    "encoding": record["captureData"]["endpointInput"]["encoding"],
    "asked": json.loads(record["captureData"]["endpointInput"]["data"]) == json.loads(picture.read_text()),
    "answered": json.loads(record["captureData"]["endpointOutput"]["data"]) == answer,
}

predictor.disable_data_capture()
described = session.sagemaker_client.describe_endpoint(EndpointName="classic-capture")
while described["EndpointStatus"] != "InService":
    time.sleep(0.2)  # sleeps: as users' scripts do
    described = session.sagemaker_client.describe_endpoint(EndpointName="classic-capture")
said |= {"after": described["DataCaptureConfig"]["CaptureStatus"]}
predictor.delete_model()
predictor.delete_endpoint()
result.write_text(json.dumps(said))
