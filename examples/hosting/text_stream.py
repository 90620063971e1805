"""A model that writes text, streamed: `python -m examples.hosting.text_stream`.

The model is the parrot of `examples/openai`, which repeats what it is told, word by word. Where SageMaker is,
AWS_ENDPOINT_URL says.
"""

import io
import json
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3

from examples.hosting.environment import check_environment

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"
ROLE = "arn:aws:iam::000000000000:role/sagemaker-execution"
PARROT = Path(__file__).parents[1] / "openai" / "models" / "parrot"
SAID = "Good morning, dear parrot!"

check_environment()
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")
s3_client = boto3.client("s3")


def main() -> None:
    name = time.strftime("parrot-%Y-%m-%d-%H-%M-%S")
    bucket = "hosting-text-stream"
    s3_client.create_bucket(Bucket=bucket)
    s3_client.put_object(Bucket=bucket, Key="parrot.tar.gz", Body=packed(PARROT))
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/parrot.tar.gz"}
    sm_client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.m5.large"}
    sm_client.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    sm_client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sm_client.get_waiter("endpoint_in_service").wait(EndpointName=name)
    print(f"{name}: InService")

    # as of OpenAI's API
    messages = [{"role": "user", "content": SAID}]
    events = [line.removeprefix("data: ") for line in lines(name, {"messages": messages}) if line]
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    show("chat", [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks])

    # as of LMI's containers
    body = {"inputs": SAID, "parameters": {"max_new_tokens": 3}}
    tokens = [json.loads(line) for line in lines(name, body)]
    show("text", [token["token"]["text"] for token in tokens])
    print("ended by:", tokens[-1]["details"]["finish_reason"])

    sm_client.delete_endpoint(EndpointName=name)
    sm_client.delete_endpoint_config(EndpointConfigName=name)
    sm_client.delete_model(ModelName=name)
    s3_client.delete_object(Bucket=bucket, Key="parrot.tar.gz")
    s3_client.delete_bucket(Bucket=bucket)
    print("deleted")


def packed(model: Path) -> bytes:
    """The archive of a model's directory."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(model, model.name)
    return data.getvalue()


def lines(endpoint: str, body: dict[str, Any]) -> Iterator[str]:
    """The lines of a stream, as they come; a part may end in the middle of one."""
    answer = runtime_sm_client.invoke_endpoint_with_response_stream(
        EndpointName=endpoint,
        ContentType="application/json",
        Body=json.dumps({**body, "stream": True}),
    )
    rest = b""
    with closing(answer["Body"]) as events:
        for event in events:
            *whole, rest = (rest + event["PayloadPart"]["Bytes"]).split(b"\n")
            yield from (line.decode() for line in whole)


def show(what: str, pieces: list[str]) -> None:
    """Print the pieces of a text, apart."""
    print(f"{what}:", "|".join(piece for piece in pieces if piece))


if __name__ == "__main__":
    main()
