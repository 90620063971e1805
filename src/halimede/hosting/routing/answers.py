"""The runtime's errors, as its clients read them."""

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.hosting.request_ids import new_request_id
from halimede.hosting.routing.table import EndpointRoute


def answer_error(request: Request, error: ApiError) -> None:
    """Answer an invocation with an error (REST-JSON: the code is a header, the rest JSON)."""
    body = orjson.dumps({"ErrorCode": error.code, "Message": error.message, **error.fields})
    headers = (
        ("Content-Type", "application/json"),
        ("x-amzn-errortype", error.code),
        ("x-amzn-RequestId", new_request_id()),
    )
    request.respond(error.status, body, headers)


def model_error(route: EndpointRoute, container: str, status: int, text: str) -> ApiError:
    """A container answered `status`, which is no success, with `text`."""
    side = "client" if status < 500 else "server"
    message = (
        f'Received {side} error ({status}) from {container} with message "{text}". See the log group '
        f"{log_group(route)} in account {route.account} for more information."
    )
    return _model_error(route, message, status, text)


def no_answer(route: EndpointRoute, container: str, reason: str) -> ApiError:
    """A container gave no whole response."""
    message = (
        f"No response from container {container}: {reason}. See the log group {log_group(route)} in "
        f"account {route.account} for more information."
    )
    return _model_error(route, message, 0, "")


def timed_out(route: EndpointRoute, container: str, seconds: float) -> ApiError:
    """A container took too long."""
    message = (
        f"Your invocation timed out while waiting for a response from container {container} after "
        f"{seconds:g} seconds. Review the latency metrics of the variant and the log group {log_group(route)}."
    )
    return _model_error(route, message, 0, "")


def log_group(route: EndpointRoute) -> str:
    """The log group of the endpoint's instances."""
    return f"/aws/sagemaker/Endpoints/{route.name}"


def _model_error(route: EndpointRoute, message: str, status: int, text: str) -> ApiError:
    arn = f"arn:aws:logs:{route.region}:{route.account}:log-group:{log_group(route)}"
    fields = {"OriginalStatusCode": status, "OriginalMessage": text, "LogStreamArn": arn}
    return ApiError("ModelError", message, 424, fields)
