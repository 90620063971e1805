"""What users of the SageMaker Python SDK write: a language model, deployed and asked, as a whole and streamed."""

import json
import sys
from pathlib import Path

import sagemaker
from sagemaker import get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.iterators import LineIterator
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

from halimede.sagemaker_sdk import use_host

archive, _, result = map(Path, sys.argv[1:])
use_host()
session = sagemaker.Session()
deployed = Model(
    image_uri=sagemaker.image_uris.retrieve(
        "sagemaker-tritonserver", session.boto_region_name, version="25.09", instance_type="ml.m5.large"
    ),
    model_data=session.upload_data(str(archive), key_prefix="classic-text"),
    role=get_execution_role(),
    predictor_cls=Predictor,
    sagemaker_session=session,
    name="classic-text",
)
predictor = deployed.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="classic-text",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
)
messages = [{"role": "user", "content": "good day"}]
body = {"inputs": "good day", "stream": True}
lines = [json.loads(line)["token"]["text"] for line in predictor.predict_stream(body, iterator=LineIterator)]
chat = predictor.predict({"messages": messages})
chunks = [
    json.loads(line.removeprefix(b"data: "))
    for line in predictor.predict_stream({"messages": messages, "stream": True}, iterator=LineIterator)
    if line.startswith(b"data: {")
]
said = {
    "text": predictor.predict({"inputs": "good day"}),
    "lines": lines,
    "chat": chat["choices"][0]["message"]["content"],
    "streamed": "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks),
}
predictor.delete_endpoint()
result.write_text(json.dumps(said))
