"""The calls of the published notebook on `ModelBuilder` and Triton: a module of PyTorch is exported and deployed."""

import json
import sys
from pathlib import Path

import boto3
import sagemaker
import torch
from sagemaker.serve import Mode, ModelBuilder, ModelServer, SchemaBuilder

from halimede.sagemaker_sdk import use_host

_, result = map(Path, sys.argv[1:])
use_host()
session = sagemaker.Session(boto_session=boto3.Session())
model = torch.nn.Linear(4, 2).eval()
sample = torch.rand(1, 4)
with torch.no_grad():
    expected = model(sample)

builder = ModelBuilder(
    model=model,
    schema_builder=SchemaBuilder(sample_input=sample, sample_output=expected),
    model_path=str(result.with_suffix(".built")),
    role_arn=sagemaker.get_execution_role(session),
    sagemaker_session=session,
    model_server=ModelServer.TRITON,
    mode=Mode.SAGEMAKER_ENDPOINT,
)
builder.secret_key = ""  # the SDK asks for this attribute and has not set it
built = builder.build()
predictor = built.deploy(
    initial_instance_count=1, instance_type="ml.m5.large", endpoint_name="classic-builder"
)
[output] = predictor.predict(sample)["outputs"]
said = {"environment": built.env["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"], "shape": output["shape"]}
near = bool(torch.allclose(torch.tensor(output["data"]).reshape(1, 2), expected, atol=1e-5))
predictor.delete_model()
predictor.delete_endpoint()
result.write_text(json.dumps(said | {"near": near}))
