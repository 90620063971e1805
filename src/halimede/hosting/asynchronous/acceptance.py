"""InvokeEndpointAsync: what a request asks for, held against the runtime's service model."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from halimede.hosting.api.services import Service
from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.request_ids import ordered_id
from halimede.hosting.routing.table import EndpointRoute
from halimede.hosting.s3_urls import bucket_and_key
from halimede.http1.head import Head

BODY_BYTES = 128_000
"""The largest input that may come with a request (SageMaker's limit)."""

_TTL_S = 21_600
_TIMEOUT_S = 900

_FORWARDED = {
    "ContentType": "content-type",
    "Accept": "accept",
    "CustomAttributes": "x-amzn-sagemaker-custom-attributes",
    "InferenceId": "x-amzn-sagemaker-inference-id",
}
"""Parameter → the header with which the instance gets it."""

_MAX_SHOWN = 64
_RUNTIME = Service("sagemaker-runtime", {}, refusal="ValidationError")


def parameters_of(head: Head, endpoint: str) -> Mapping[str, Any]:
    """The parameters that are in a request's headers.

    Raises:
        ApiError: one breaks the service model.
    """
    given: dict[str, Any] = {"EndpointName": endpoint, "Body": ""}  # the body is looked at by itself
    for header, (name, is_number) in _parameters().items():
        text = head.headers.get(header)
        if text is not None:
            given[name] = _number(name, text) if is_number else text
    return _RUNTIME.checker.check(_shape(), given)


def accepted(
    parameters: Mapping[str, Any], body: bytes, route: EndpointRoute, seq: int, now: float
) -> AsyncRequest:
    """The request that is to be kept.

    Args:
        parameters: what `parameters_of` gave.
        body: the request's body.
        route: its endpoint.
        seq: its place.
        now: the time.

    Raises:
        ApiError: it cannot be accepted.
    """
    spec = route.asynchronous
    if spec is None:
        msg = (
            f"Endpoint {route.name} of account {route.account} is not an asynchronous endpoint; use InvokeEndpoint, "
            f"or give its configuration an AsyncInferenceConfig"
        )
        raise invalid_invocation(msg)
    source = parameters.get("InputLocation", "")
    if bool(source) is bool(body):
        both = "both were given" if source else "neither was given"
        raise invalid_invocation(f"Exactly one of InputLocation and Body must be given; {both}")
    if source and "" in bucket_and_key(source):
        raise invalid_invocation(f"InputLocation '{source}' is no object's URL; expected s3://BUCKET/KEY")
    name = ordered_id(
        now
    )  # objects that are written together are then beside each other in the store's tables
    output, failure = _places(parameters, name)
    parameters = {"InferenceId": name, **parameters}
    return AsyncRequest(
        seq=seq,
        endpoint=route.id,
        id=parameters["InferenceId"],
        accepted=now,
        expires=now + parameters.get("RequestTTLSeconds", _TTL_S),
        timeout_s=parameters.get("InvocationTimeoutSeconds", _TIMEOUT_S),
        output=f"{spec.output}/{output}",
        failure=f"{spec.failure}/{failure}" if spec.failure else "",
        is_named_here="Filename" not in parameters,
        source=source,
        headers={header: parameters[each] for each, header in _FORWARDED.items() if each in parameters},
        body=body,
    )


def _places(parameters: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Where the result and an error go, below the paths of the configuration."""
    result, error = f"{name}.out", f"{name}-error.out"
    if "Filename" in parameters:
        result = parameters["Filename"]
        error = f"{result.partition('.')[0]}-error.out"
    extension = parameters.get("S3OutputPathExtension", "").strip("/")
    lead = f"{extension}/" if extension else ""
    return lead + result, lead + error


def too_large(size: int) -> ApiError:
    """The input that came with a request is larger than it may be."""
    msg = (
        f"Body has {size:,} bytes or more, and it may have {BODY_BYTES:,}; put a larger one into a bucket and use "
        f"InputLocation"
    )
    return invalid_invocation(msg)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise invalid_invocation(f"Value '{text[:_MAX_SHOWN]}' of {name} is not a whole number")
    return int(text)


def _shape() -> Any:
    return _RUNTIME.model.operation_model("InvokeEndpointAsync").input_shape


@cache
def _parameters() -> Mapping[str, tuple[str, bool]]:
    """Lower-case header → parameter, and whether it is a number."""
    return {
        member.serialization["name"].lower(): (name, member.type_name == "integer")
        for name, member in _shape().members.items()
        if member.serialization.get("location") == "header"
    }
