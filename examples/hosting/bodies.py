"""Tensors as bytes in bodies of invocations, with the helpers of Triton's client."""

from collections.abc import Mapping
from typing import Any

import tritonclient.http as triton

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="


def request(*inputs: triton.InferInput) -> dict[str, Any]:
    """The parameters `ContentType` and `Body` of an invocation."""
    body, json_size = triton.InferenceServerClient.generate_request_body(list(inputs))
    return {"ContentType": f"{BINARY}{json_size}", "Body": body}


def result(response: Mapping[str, Any]) -> triton.InferResult:
    """The tensors of an invocation's response."""
    header_length = int(response["ContentType"].removeprefix(BINARY))
    return triton.InferenceServerClient.parse_response_body(
        response["Body"].read(), header_length=header_length
    )
