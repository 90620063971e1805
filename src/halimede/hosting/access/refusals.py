"""Requests that may not come in, in the words of each protocol: SageMaker's JSON, the query protocol, S3's XML.

A gate raises a `RefusedError`, which is an error of the JSON protocols as it is; the others ask for theirs.
"""

from dataclasses import dataclass
from enum import Enum

from halimede.hosting.errors import ApiError


@dataclass(frozen=True, slots=True)
class _Words:
    """Codes, S3's status, and what AWS says first.

    Attributes:
        json: the code of the JSON protocols and of the runtime.
        query: the one of the query protocol.
        s3: the one of S3.
        s3_status: the HTTP status with it; it is 403 in the other protocols.
        text: what a message begins with, "" if it needs no such beginning.
        s3_text: the same in S3's.
    """

    json: str
    query: str
    s3: str
    s3_status: int = 403
    text: str = ""
    s3_text: str = ""


_WRONG = ("InvalidSignatureException", "SignatureDoesNotMatch")
_INCOMPLETE = ("IncompleteSignatureException", "IncompleteSignature")
_INVALID = ("UnrecognizedClientException", "InvalidClientTokenId")
_INVALID_TEXT = "The security token included in the request is invalid. "


class Reason(Enum):
    """Why a request may not come in."""

    UNSIGNED = _Words(
        "MissingAuthenticationTokenException", "MissingAuthenticationToken", "AccessDenied",
        text="Missing Authentication Token. ", s3_text="Access Denied. ",
    )  # fmt: skip
    UNKNOWN_KEY = _Words(
        *_INVALID, "InvalidAccessKeyId",
        text=_INVALID_TEXT, s3_text="The AWS Access Key Id you provided does not exist in our records. ",
    )  # fmt: skip
    WRONG_TOKEN = _Words(
        *_INVALID, "InvalidToken", 400,
        text=_INVALID_TEXT, s3_text="The provided token is malformed or otherwise invalid. ",
    )  # fmt: skip
    WRONG_SIGNATURE = _Words(*_WRONG, "SignatureDoesNotMatch")
    WRONG_BODY = _Words(*_WRONG, "XAmzContentSHA256Mismatch", 400)
    NOT_CURRENT = _Words(
        *_WRONG, "RequestTimeTooSkewed",
        s3_text="The difference between the request time and the current time is too large. ",
    )  # fmt: skip
    WRONG_SCOPE = _Words(
        *_WRONG, "AuthorizationHeaderMalformed", 400, s3_text="The authorization header is malformed. "
    )
    NO_TIME = _Words(
        *_INCOMPLETE,
        "AccessDenied",
        s3_text="AWS authentication requires a valid Date or x-amz-date header. ",
    )
    MALFORMED = _Words(
        *_INCOMPLETE, "AuthorizationHeaderMalformed", 400, s3_text="The authorization header is malformed. "
    )
    WRONG_KIND = _Words(*_INCOMPLETE, "InvalidArgument", 400, s3_text="Unsupported Authorization Type. ")
    NOT_SIGNED = _Words(*_INCOMPLETE, "AccessDenied")
    NO_HASH = _Words(*_INCOMPLETE, "InvalidRequest", 400)
    FOREIGN_PAGE = _Words("AccessDeniedException", "AccessDenied", "AccessDenied")


class RefusedError(ApiError):
    """A request may not come in.

    Attributes:
        reason: why.
        detail: what exactly is wrong, and what would be right.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason.value.json, reason.value.text + detail, 403)
        self.reason = reason
        self.detail = detail


def for_query(error: ApiError) -> ApiError:
    """The error as the query protocol has it."""
    if isinstance(error, RefusedError):
        return ApiError(error.reason.value.query, error.message, error.status)
    if error.code == "AccessDeniedException":
        return ApiError("AccessDenied", error.message, error.status)
    return error


def for_s3(error: ApiError) -> ApiError:
    """The error as S3 has it."""
    if not isinstance(error, RefusedError):
        return error
    words = error.reason.value
    return ApiError(words.s3, words.s3_text + error.detail, words.s3_status)
