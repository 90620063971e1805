"""Services of AWS that the host does not have: their calls are refused by name, in the form that their clients read."""

from collections.abc import Iterable
from typing import Final

import orjson

from halimede.core.media_types import essence
from halimede.hosting.api.query_protocol import escape
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.http1.head import Head

_FORM: Final = "application/x-www-form-urlencoded"
_XML_SERVICES: Final = frozenset({"cloudfront", "route53"})
"""Those whose requests are no forms, and whose errors are XML all the same."""

_EC2: Final = "ec2"

_MAX_SHOWN = 128


def unavailable(head: Head, service: str, known: Iterable[str]) -> ApiError:
    """The refusal of a call of a service.

    Args:
        head: the request's.
        service: for which the request was signed.
        known: the services that the host has, as signatures name them.
    """
    if service in known:  # such as SageMaker's feature store
        what = f"{head.method} {head.path[:_MAX_SHOWN]} of the service '{service}'"
    else:
        what = f"the service '{service[:_MAX_SHOWN]}'"
    msg = f"{what} is not available here; this host has {', '.join(sorted(known))}"
    return ApiError("UnknownOperationException", msg, 404)


def answer_error(request: Request, error: ApiError, service: str, request_id: str) -> None:
    """Answer with an error, as the clients of a service expect it."""
    is_form = essence(request.head.headers.get("content-type", "")) == _FORM
    if is_form or service in _XML_SERVICES:
        kind, body = "text/xml", _xml(error, service, request_id).encode()
    else:
        kind, body = "application/json", orjson.dumps({"__type": error.code, "message": error.message})
    headers = (
        ("Content-Type", kind),
        ("x-amzn-ErrorType", error.code),
        ("x-amzn-RequestId", request_id),
    )
    request.respond(error.status, body, headers)


def _xml(error: ApiError, service: str, request_id: str) -> str:
    inner = f"<Error><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message></Error>"
    if service == _EC2:
        return f"<Response><Errors>{inner}</Errors><RequestID>{request_id}</RequestID></Response>"
    return f"<ErrorResponse>{inner}<RequestId>{request_id}</RequestId></ErrorResponse>"
