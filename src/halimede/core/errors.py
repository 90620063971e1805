"""What can go wrong, as one tree, and how each kind is told over HTTP and gRPC.

    HalimedeError
    ├── UnknownError          nothing better is known
    ├── InternalError         the server or a model failed
    ├── NotFoundError         no such model, version or region
    │   └── NotLoadedError    there may be one, which a request has loaded
    ├── InvalidArgumentError  the request or the configuration is wrong
    ├── UnavailableError      right, but not now: full, stopping, not ready
    │   └── OutOfMemoryError  there is not enough memory
    ├── UnsupportedError      well-formed, but not something this server does
    ├── AlreadyExistsError    the name is taken
    ├── PermissionDeniedError well-formed, but not from this client
    └── CancelledError        the client gave up

A message says what was wrong and what would be right.
"""

from enum import Enum
from typing import ClassVar


class Code(Enum):
    """Error codes of the Triton core and one more, each with its words in logs, its HTTP status and its gRPC status."""

    UNKNOWN = ("Unknown", 400, 2)
    INTERNAL = ("Internal", 500, 13)
    NOT_FOUND = ("Not found", 404, 5)
    INVALID_ARG = ("Invalid argument", 400, 3)
    UNAVAILABLE = ("Unavailable", 503, 14)
    UNSUPPORTED = ("Unsupported", 501, 12)
    ALREADY_EXISTS = ("Already exists", 400, 6)
    CANCELLED = ("Cancelled", 400, 1)
    PERMISSION_DENIED = ("Permission denied", 403, 7)

    def __init__(self, words: str, http_status: int, grpc_status: int) -> None:
        self.words = words
        self.http_status = http_status
        self.grpc_status = grpc_status


class HalimedeError(Exception):
    """An error with a code; `message` is the text that the client reads."""

    code: ClassVar[Code] = Code.UNKNOWN

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UnknownError(HalimedeError):
    """Nothing better is known of what went wrong."""


class InternalError(HalimedeError):
    """The server or a model failed."""

    code = Code.INTERNAL


class NotFoundError(HalimedeError):
    """What the request names does not exist."""

    code = Code.NOT_FOUND


class NotLoadedError(NotFoundError):
    """The model is not loaded, but a request may have it loaded: see `Engine.demand`.

    Attributes:
        name: the model.
        version: the version that was asked for, -1 for the highest.
    """

    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"Request for unknown model: '{name}' has no available versions")
        self.name = name
        self.version = version


class InvalidArgumentError(HalimedeError):
    """The request or the configuration is wrong."""

    code = Code.INVALID_ARG


class UnavailableError(HalimedeError):
    """The request is right, but cannot be served now.

    Attributes:
        retry_after_s: in so many seconds it may be sent again; 0 if that is not known.
    """

    code = Code.UNAVAILABLE

    def __init__(self, message: str, *, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfMemoryError(UnavailableError):
    """There is not enough memory, or not enough of what models may take."""


class UnsupportedError(HalimedeError):
    """The request is well-formed, but asks for what this server does not do."""

    code = Code.UNSUPPORTED


class AlreadyExistsError(HalimedeError):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class PermissionDeniedError(HalimedeError):
    """The request is well-formed, but this client may not send it."""

    code = Code.PERMISSION_DENIED


class CancelledError(HalimedeError):
    """The client gave up on the request."""

    code = Code.CANCELLED
