"""Errors in the shape that OpenAI's clients expect: an object with a message, a type, a field and a code."""

from typing import Any, Final

import orjson

from halimede.core.errors import (
    HalimedeError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from halimede.frontends.http.transport.exchange import Exchange, Headers
from halimede.frontends.http.transport.protocol import refusal_body as http_refusal_body
from halimede.frontends.openai.routes import is_of_api
from halimede.http1.head import Refusal

_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"


class FieldError(InvalidArgumentError):
    """A field of the request is wrong, or asks for what cannot be served.

    Attributes:
        field: its name, "" for the request as a whole.
        reason: OpenAI's code for this, "" for none.
    """

    def __init__(self, field: str, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.reason = reason


def error_document(error: HalimedeError) -> dict[str, Any]:
    """The JSON that tells of an error."""
    status = error.code.http_status
    kind = _SERVER if status >= 500 else _INVALID
    field = (error.field or None) if isinstance(error, FieldError) else None
    code = (error.reason or None) if isinstance(error, FieldError) else None
    if isinstance(error, NotFoundError):
        field, code = "model", "model_not_found"
    return refusal_document(error.message, kind, field, code)


def refusal_document(
    message: str, kind: str = _INVALID, field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON of an error with these members."""
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def respond_error(exchange: Exchange, error: HalimedeError) -> None:
    """Answer with the error's status and text, and with when to try again, if that is known."""
    headers: Headers = ()
    if isinstance(error, UnavailableError) and error.retry_after_s:
        headers = (("Retry-After", str(error.retry_after_s)),)
    body = orjson.dumps(error_document(error))
    exchange.respond(error.code.http_status, (body,), headers=headers)


def refuse(exchange: Exchange, status: int, message: str, code: str | None = None) -> None:
    """Answer with a status that is no model's: a path that there is not, a method that is wrong."""
    exchange.respond(status, (orjson.dumps(refusal_document(message, code=code)),))


def refusal_body(refusal: Refusal) -> bytes:
    """The JSON that tells why the transport refuses a request: in OpenAI's shape on its paths."""
    head = refusal.head
    if head is None or not is_of_api(head.path):
        return http_refusal_body(refusal)
    code = "invalid_api_key" if refusal.status == 401 else None
    return orjson.dumps(refusal_document(refusal.message, code=code))
