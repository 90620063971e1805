"""Heads of requests to containers, and of responses to whoever asked the instance.

They repeat, so what was made of the last few hundred is remembered.
"""

from halimede.core.memo import Memo
from halimede.hosting.http.request import response_head
from halimede.hosting.routing.heads import (
    CONTAINER,
    FAILURE,
    forwarded_headers,
    returned_headers,
)
from halimede.http1.client import request_head
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead


def _request_head(key: tuple[Head, str | None, bool, str, int]) -> bytes:
    head, content_type, is_last, host, length = key
    headers = forwarded_headers(head)
    if content_type is not None:
        headers["content-type"] = content_type
        if not content_type:
            del headers["content-type"]
    if not is_last:
        headers.pop("accept", None)
    return request_head("POST", "/invocations", host, headers, length)


REQUEST_HEADS = Memo(_request_head)
"""The head of the request to a container: of the head that came, the type of what the container before has answered
("" if it had none, None for the first container, which gets the client's), whether it is the last one, whose response
is what the client accepts, its address, and the body's length, -1 for one that goes out in chunks."""


def _response_head(key: tuple[ResponseHead, bool]) -> bytes:
    response, chunked = key
    headers = returned_headers(response)
    if "content-type" in response.headers:
        headers.append(("Content-Type", response.headers["content-type"]))
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif response.length >= 0:
        headers.append(("Content-Length", str(response.length)))
    return response_head(response.status, headers)


RESPONSE_HEADS = Memo(_response_head)
"""The head of a response: of the last container's, and whether it goes out in chunks."""


def error_headers(container: str, response: ResponseHead) -> list[tuple[str, str]]:
    """The headers of the response that a container has answered with, which is no success."""
    content_type = response.headers.get("content-type", "text/plain")
    return [(CONTAINER, container), ("Content-Type", content_type)]


def failure_headers(container: str, reason: str) -> list[tuple[str, str]]:
    """The headers of a response that says that a container gave none, or not all of it."""
    text = " ".join(reason.encode("ascii", "replace").decode().split())
    return [(CONTAINER, container), (FAILURE, text)]
