"""AWS JSON 1.0 and 1.1: the operation is a header, the request and the answer are JSON."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Headers, Request

_MAX_LEVELS = 64
"""No operation's request has half as many; what is stored is written as JSON again, which has a limit too."""


def parse_document(body: bytes) -> Mapping[str, Any]:
    """The document that a request's body is.

    Raises:
        ApiError: it is no JSON object, or a very deep one (``SerializationException``).
    """
    try:
        document = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise ApiError("SerializationException", f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ApiError("SerializationException", "the body is not a JSON object")
    level: list[Any] = [document]
    for _ in range(_MAX_LEVELS):
        level = [
            below
            for each in level
            for below in (each.values() if isinstance(each, dict) else each)
            if isinstance(below, (dict, list))
        ]
        if not level:
            return document
    raise ApiError("SerializationException", f"the body is nested deeper than {_MAX_LEVELS} levels")


def answer(request: Request, document: Mapping[str, Any], version: str, request_id: str) -> None:
    """Answer with a document; times become seconds since 1970."""
    data = orjson.dumps(document, default=_seconds, option=orjson.OPT_PASSTHROUGH_DATETIME)
    request.respond(200, data, _headers(version, request_id))


def answer_error(
    request: Request, error: ApiError, version: str, request_id: str, *, query: bool = False
) -> None:
    """Answer with an error.

    Args:
        request: the client's.
        error: what is wrong.
        version: ``1.0`` or ``1.1``.
        request_id: the request's.
        query: the client expects the error codes of the query protocol too (``x-amzn-query-mode``).
    """
    data = orjson.dumps({"__type": error.code, "message": error.message, **error.fields})
    headers = list(_headers(version, request_id))
    if query:
        side = "Sender" if error.status < 500 else "Receiver"
        headers.append(("x-amzn-query-error", f"{error.code};{side}"))
    request.respond(error.status, data, headers)


def _headers(version: str, request_id: str) -> Headers:
    return (("Content-Type", f"application/x-amz-json-{version}"), ("x-amzn-RequestId", request_id))


def _seconds(value: object) -> float:
    if isinstance(value, datetime):
        return round(value.timestamp(), 3)
    raise TypeError(f"{type(value).__name__} is not serializable")
