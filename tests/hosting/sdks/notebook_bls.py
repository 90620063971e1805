"""The calls of published notebooks around one archive of several models: a Python model that calls another, preloaded.

The archive has its models at its top level, as `tar -C model_repository -czf model.tar.gz .` packs them. Requests have
all the forms in which the notebooks write tensors.
"""

import json
import sys
import tarfile
from pathlib import Path

import boto3
import numpy as np
import tritonclient.http as httpclient

from halimede.sagemaker_sdk import use_host
from tests.hosting.sdks.sdk import S3Uploader, Session, get_execution_role, name_from_base

CONFIG = """\
backend: "python"
max_batch_size: 8
input {{ name: "{0}" data_type: TYPE_STRING dims: 1 }}
output {{ name: "{1}" data_type: TYPE_STRING dims: 1 }}
"""
UPPER = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("UPPER", np.char.upper(text.astype(bytes)).astype(object))])
            for text in texts
        ]
"""
PIPELINE = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.Tensor("TEXT", pb_utils.get_input_tensor_by_name(request, "prompt").as_numpy())
        called = pb_utils.InferenceRequest(model_name="upper", requested_output_names=["UPPER"], inputs=[text])
        response = called.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        upper = pb_utils.get_output_tensor_by_name(response, "UPPER")
        return pb_utils.InferenceResponse([pb_utils.Tensor("answer", upper.as_numpy())])
"""
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="

_, result = map(Path, sys.argv[1:])
said: dict[str, object] = {}
use_host()

repository = result.with_suffix(".repository")
for name, config, code in (
    ("upper", CONFIG.format("TEXT", "UPPER"), UPPER),
    ("pipeline", CONFIG.format("prompt", "answer"), PIPELINE),
):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1" / "model.py").write_text(code)
packed = result.with_suffix(".tar.gz")
with tarfile.open(packed, "w:gz") as archive:
    archive.add(repository, ".")

session = Session(boto_session=boto3.Session())
role = get_execution_role()
sm_client = boto3.client("sagemaker", region_name=session.boto_region_name)
runtime = boto3.client("sagemaker-runtime")
prefix = "/".join(filter(None, [session.default_bucket_prefix, "notebook-bls"]))
data = S3Uploader.upload(
    local_path=str(packed),
    desired_s3_uri=f"s3://{session.default_bucket()}/{prefix}",
    sagemaker_session=session,
)
said |= {"uploaded": data}

name = name_from_base("Notebook-BLS-")
image = f"785573368785.dkr.ecr.{session.boto_region_name}.amazonaws.com/sagemaker-tritonserver:22.10-py3"
sm_client.create_model(
    ModelName=name,
    ExecutionRoleArn=role,
    PrimaryContainer={
        "Image": image,
        "Mode": "SingleModel",
        "ModelDataUrl": data,
        "Environment": {
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "pipeline",
            "SAGEMAKER_TRITON_LOG_INFO": "false --load-model=upper",
            "SAGEMAKER_TRITON_MAX_BATCH_DELAY": "1000",
        },
    },
)
variant = {
    "InstanceType": "ml.g4dn.xlarge",
    "InitialVariantWeight": 1,
    "InitialInstanceCount": 1,
    "ModelName": name,
    "VariantName": "AllTraffic",
}
sm_client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)
said |= {"status": sm_client.describe_endpoint(EndpointName=name)["EndpointStatus"]}


def invoke(body: bytes | str, content_type: str) -> tuple[str, bytes]:
    """The media type and the body of the answer."""
    answer = runtime.invoke_endpoint(EndpointName=name, ContentType=content_type, Body=body)
    return answer["ContentType"], answer["Body"].read()


def parsed(content_type: str, body: bytes) -> list[str]:
    """The texts of an answer with binary tensors."""
    length = int(content_type.removeprefix(BINARY))
    answer = httpclient.InferenceServerClient.parse_response_body(body, header_length=length)
    return [text.decode() for text in answer.as_numpy("answer").ravel()]


# nested lists, and a shape that is a tuple
texts = np.array([["one"], ["two"]], dtype=object)
document = {"inputs": [{"name": "prompt", "shape": texts.shape, "datatype": "BYTES", "data": texts.tolist()}]}
for content_type in ("application/octet-stream", "application/json"):
    returned, body = invoke(json.dumps(document), content_type)
    said |= {content_type: [returned, json.loads(body)["outputs"][0]["data"]]}

# binary tensors; all outputs are asked for, one as JSON, or none by name
given = httpclient.InferInput("prompt", texts.shape, "BYTES")
given.set_data_from_numpy(texts, binary_data=True)
generate = httpclient.InferenceServerClient.generate_request_body
for what, outputs in (
    ("binary", [httpclient.InferRequestedOutput("answer", binary_data=True)]),
    ("unnamed", []),
):
    body, length = generate([given], outputs=outputs)
    said |= {what: parsed(*invoke(body, f"{BINARY}{length}"))}
body, length = generate([given], outputs=[httpclient.InferRequestedOutput("answer", binary_data=False)])
returned, body = invoke(body, f"{BINARY}{length}")
answer = httpclient.InferenceServerClient.parse_response_body(body)
said |= {"as JSON": [returned, answer.as_numpy("answer").ravel().tolist()]}

# a request without binary tensors has no header's length: what is sent is the text "None"
given.set_data_from_numpy(texts, binary_data=False)
body, length = generate([given], outputs=[httpclient.InferRequestedOutput("answer")])
said |= {"length": length}
said |= {"without length": parsed(*invoke(body, f"{BINARY}{length}"))}

# the model and the configuration go before the endpoint
sm_client.delete_model(ModelName=name)
sm_client.delete_endpoint_config(EndpointConfigName=name)
sm_client.delete_endpoint(EndpointName=name)
result.write_text(json.dumps(said))
