"""Errors as AWS's clients know them: a code, an HTTP status and a text."""


class ApiError(Exception):
    """An operation is refused or failed.

    Attributes:
        code: the error's code, such as ``ValidationException``.
        message: what is wrong, and what would be right.
        status: the HTTP status.
        fields: further members of the answer, such as ``OriginalStatusCode``.
    """

    def __init__(
        self, code: str, message: str, status: int = 400, fields: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.fields = fields or {}

    def of_container(self, name: str) -> "ApiError":
        """The same error, saying which of several containers it is about."""
        return ApiError(self.code, f"container '{name}': {self.message}", self.status, self.fields)

    def __reduce__(self) -> tuple[object, ...]:
        """The same error in another process, but for its class."""
        return ApiError, (self.code, self.message, self.status, self.fields)


def invalid(message: str) -> ApiError:
    """The control plane's usual refusal."""
    return ApiError("ValidationException", message)


def invalid_invocation(message: str) -> ApiError:
    """The runtime's usual refusal; its code is another than the control plane's."""
    return ApiError("ValidationError", message)
