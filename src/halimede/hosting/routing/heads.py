"""Heads of requests to instances and of their responses to clients: which headers are passed on, and as what.

Header names are those of the runtime's operations (`sagemaker-runtime`, InvokeEndpoint and
InvokeEndpointWithResponseStream). Clients and instances repeat theirs, so what was made of the last few hundred is
remembered.
"""

from collections.abc import Mapping

from halimede.core.memo import Memo
from halimede.hosting.http.request import response_head
from halimede.hosting.routing.event_stream import CONTENT_TYPE as EVENT_STREAM
from halimede.http1.client import request_head
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead

_SAGEMAKER = "x-amzn-sagemaker-"
TARGET_MODEL = "x-amzn-sagemaker-target-model"
TARGET_VARIANT = "x-amzn-sagemaker-target-variant"
TARGET_CONTAINER = "x-amzn-sagemaker-target-container-hostname"
SESSION = "x-amzn-sagemaker-session-id"
NEW_SESSION = "x-amzn-sagemaker-new-session-id"
CLOSED_SESSION = "x-amzn-sagemaker-closed-session-id"
_STREAM_ACCEPT = "x-amzn-sagemaker-accept"

CONTAINER = "x-halimede-container"
"""Of a response of an instance of several containers: which of them it is that did not answer as it should."""

FAILURE = "x-halimede-failure"
"""Beside that, if the container gave no whole response: why."""

_RETURNED_HEADERS = {
    "x-amzn-sagemaker-custom-attributes": "X-Amzn-SageMaker-Custom-Attributes",
}
"""Headers of an instance's response that clients get."""

_SESSION_HEADERS = {
    NEW_SESSION: "X-Amzn-SageMaker-New-Session-Id",
    CLOSED_SESSION: "X-Amzn-SageMaker-Closed-Session-Id",
}
"""Further ones, of those who have a session or asked for one."""

_DEFAULT_TYPE = "application/octet-stream"


def forwarded_headers(head: Head) -> dict[str, str]:
    """The client's headers that the instance gets: the content's types, and SageMaker's own."""
    headers = {
        name: value
        for name, value in head.headers.items()
        if name in ("content-type", "accept") or name.startswith(_SAGEMAKER)
    }
    if _STREAM_ACCEPT in headers:  # as the streaming operation calls it
        headers["accept"] = headers.pop(_STREAM_ACCEPT)
    return headers


def _request_head(key: tuple[Head, str, str, int]) -> bytes:
    head, path, host, length = key
    return request_head("POST", path, host, forwarded_headers(head), length)


def session_request_head(head: Head, path: str, host: str, length: int, session: str) -> bytes:
    """The head of a request in a session, which the instance knows by that id."""
    return request_head("POST", path, host, {**forwarded_headers(head), SESSION: session}, length)


REQUEST_HEADS = Memo(_request_head)
"""The head of the request to an instance: of the client's head, the path, the instance's address, and the body's
length, -1 for one that goes out in chunks."""


def _reply_head(key: tuple[ResponseHead, str, bool]) -> bytes:
    response, variant, chunked = key
    return _head_to_client(response, variant, _RETURNED_HEADERS, chunked=chunked)


def session_reply_head(response: ResponseHead, variant: str, *, chunked: bool) -> bytes:
    """The head of a response in a session; no two of them are alike."""
    return _head_to_client(response, variant, _RETURNED_HEADERS | _SESSION_HEADERS, chunked=chunked)


def _head_to_client(
    response: ResponseHead, variant: str, returned: Mapping[str, str], *, chunked: bool
) -> bytes:
    headers = [
        ("Content-Type", response.headers.get("content-type", _DEFAULT_TYPE)),
        ("x-Amzn-Invoked-Production-Variant", variant),
        *_returned(response, returned),
    ]
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif response.length >= 0:
        headers.append(("Content-Length", str(response.length)))
    return response_head(200, headers)


REPLY_HEADS = Memo(_reply_head)
"""The head of the response to a client: of the instance's, the variant's name, and whether it goes out in chunks."""


def stream_head(response: ResponseHead, variant: str, *, chunked: bool, in_session: bool = False) -> bytes:
    """The head of a response stream; the instance's content type has a header of its own there."""
    returned = _RETURNED_HEADERS | _SESSION_HEADERS if in_session else _RETURNED_HEADERS
    headers = [
        ("Content-Type", EVENT_STREAM),
        ("X-Amzn-SageMaker-Content-Type", response.headers.get("content-type", _DEFAULT_TYPE)),
        ("x-Amzn-Invoked-Production-Variant", variant),
        *_returned(response, returned),
    ]
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    return response_head(200, headers)


def returned_headers(response: ResponseHead) -> list[tuple[str, str]]:
    """The headers of a container's response that clients may get, besides its type."""
    return _returned(response, _RETURNED_HEADERS | _SESSION_HEADERS)


def _returned(response: ResponseHead, names: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, response.headers[key]) for key, name in names.items() if key in response.headers]
