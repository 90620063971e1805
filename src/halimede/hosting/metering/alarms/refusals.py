"""How CloudWatch refuses requests about alarms."""

from halimede.hosting.errors import ApiError


def refused(message: str) -> ApiError:
    """The refusal of a request that makes no sense."""
    return ApiError("ValidationError", message)
