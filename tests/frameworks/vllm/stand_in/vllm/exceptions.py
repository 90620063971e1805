"""Exceptions of vLLM 0.33, which are no ValueErrors."""

from http import HTTPStatus
from typing import Any


class VLLMError(Exception):
    """Of all kinds."""


class VLLMClientError(VLLMError):
    """What a client did wrong."""


class VLLMServerError(VLLMError):
    """What the server did wrong."""


class VLLMValidationError(VLLMClientError):
    """A parameter is wrong."""

    def __init__(self, message: str, *, parameter: str | None = None, value: Any = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class GracefulHTTPError(VLLMError):
    """Something that happens, with the status for it."""

    def __init__(self, message: str, http_status: HTTPStatus) -> None:
        super().__init__(message)
        self.http_status = http_status


class QueueOverflowError(GracefulHTTPError):
    """There are too many requests."""

    def __init__(self) -> None:
        super().__init__("the engine is busy", HTTPStatus.SERVICE_UNAVAILABLE)
