"""Heads of the runtime's requests, held against its service model (`sagemaker-runtime`).

Clients repeat their heads, so what is said of the last few hundred is remembered.
"""

from functools import cache
from typing import Any

from halimede.core.memo import Memo
from halimede.hosting.api.services import Service
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.invocations import OPERATIONS, STREAMED, operation_of
from halimede.http1.head import Head

_MISSING = {
    "InferenceComponentName": "inference components are",
    "EnableExplanations": "explanations of SageMaker Clarify are",
}
"""Parameters that ask for what the host does not have."""


def _refusal(head: Head) -> ApiError | None:
    endpoint, operation = operation_of(head.path)
    if operation not in OPERATIONS:
        return None  # the runtime says so
    streamed = operation == STREAMED
    given = {"EndpointName": endpoint, "Body": ""}  # the body is looked at as it comes
    for header, name in _parameters(streamed=streamed).items():
        if header in head.headers:
            given[name] = head.headers[header]
    try:
        _RUNTIME.checker.check(_shape(streamed=streamed), given)
    except ApiError as error:
        return error.with_traceback(None)  # it is kept, and its frames are not to be
    for name, what in _MISSING.items():
        if name in given:
            return invalid_invocation(f"{what} not available in this version; leave {name} out")
    return None


REFUSALS = Memo(_refusal)
"""What an invocation with that head is answered at once; None for most."""

_RUNTIME = Service("sagemaker-runtime", {}, refusal="ValidationError")


def _shape(*, streamed: bool) -> Any:
    name = "InvokeEndpointWithResponseStream" if streamed else "InvokeEndpoint"
    return _RUNTIME.model.operation_model(name).input_shape


@cache
def _parameters(*, streamed: bool) -> dict[str, str]:
    """Lower-case header → parameter."""
    return {
        member.serialization["name"].lower(): name
        for name, member in _shape(streamed=streamed).members.items()
        if member.serialization.get("location") == "header"
    }
