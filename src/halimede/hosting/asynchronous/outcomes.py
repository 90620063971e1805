"""What has become of a request, and how it is told: as an object and as a message."""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.errors import ApiError
from halimede.hosting.specs import AsyncSpec

INCLUDED_BYTES = 128 << 10
"""A larger response is in no message (SageMaker's limit)."""

_MORE = "Check S3 path location(if configured) or Cloudwatch for additional details."
_SUCCESS, _ERROR = "SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC"


class Kind(Enum):
    """How a request ended. The value is the metric that counts it."""

    COMPLETED = "InvocationsProcesssed"  # as CloudWatch spells it
    NO_INPUT = "RequestDownloadFailures"
    EXPIRED = "ExpiredRequests"
    FAILED = "InvocationFailures"
    NOT_WRITTEN = "ResponseUploadFailures"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended.

    Attributes:
        kind: how.
        body: the response, or the file that holds it; the JSON document of an error.
        content_type: of that.
        reason: why it failed, "" if it did not.
        variant: the variant that it was sent to; "" for none.
        is_written: the object is there already.
    """

    kind: Kind
    body: bytes | Path = b""
    content_type: str = "application/octet-stream"
    reason: str = ""
    variant: str = ""
    is_written: bool = False

    @property
    def is_success(self) -> bool:
        """Whether there is a result."""
        return self.kind is Kind.COMPLETED


def failed(kind: Kind, error: ApiError, variant: str = "") -> Outcome:
    """The outcome of a request that failed."""
    document = {"ErrorCode": error.code, "Message": error.message, **error.fields}
    reason = f"{error.code}: {error.message}"
    return Outcome(kind, orjson.dumps(document), "application/json", reason, variant)


def error_text(error: Exception) -> str:
    """What the log, and the client, are told of an error; of one that nobody foresaw its class as well."""
    return error.message if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"


def host_failure(error: Exception) -> ApiError:
    """An error of the host that nobody foresaw, as the client is told."""
    return ApiError("InternalFailure", f"the host failed: {error_text(error)}", 500)


def topic_of(spec: AsyncSpec, outcome: Outcome) -> str:
    """The ARN of the topic that is told; "" for none."""
    return spec.success_topic if outcome.is_success else spec.error_topic


def message_of(request: AsyncRequest, outcome: Outcome, spec: AsyncSpec, now: float) -> str:
    """What the topic is told, as SageMaker tells it."""
    parameters: dict[str, str] = {"endpointName": request.endpoint.name}
    for header, name in (("accept", "accept"), ("content-type", "contentType")):
        if header in request.headers:
            parameters[name] = request.headers[header]
    if request.source:
        parameters["inputLocation"] = request.source
    message: dict[str, Any] = {
        "awsRegion": request.endpoint.region,
        "eventTime": _time(now),
        "receivedTime": _time(request.accepted),
        "invocationStatus": "Completed" if outcome.is_success else "Failed",
    }
    if not outcome.is_success:
        message["failureReason"] = outcome.reason
    message["requestParameters"] = parameters
    where = "outputLocation" if outcome.is_success else "failureLocation"
    url = request.output if outcome.is_success else request.failure
    if url:
        message["responseParameters"] = {"contentType": outcome.content_type, where: url}
    if (_SUCCESS if outcome.is_success else _ERROR) in spec.included:
        message["responseBody"] = _included(outcome)
    message["inferenceId"] = request.id
    message |= {"eventVersion": "1.0", "eventSource": "aws:sagemaker", "eventName": "InferenceResult"}
    return orjson.dumps(message).decode()


def _included(outcome: Outcome) -> dict[str, str]:
    included = {"message": _MORE, "encoding": "BASE64"}
    if isinstance(outcome.body, bytes) and len(outcome.body) <= INCLUDED_BYTES and not outcome.is_written:
        included["content"] = base64.b64encode(outcome.body).decode()
    return included


def _time(when: float) -> str:
    moment = datetime.fromtimestamp(when, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
