"""Presigned URLs of S3: the signature is in the query, good for a while, for whoever has the URL.

Version 4 (``X-Amz-Signature``) is what S3 documents. Version 2 (``AWSAccessKeyId``, ``Signature``, ``Expires``) is what
boto3 makes for an endpoint of one's own unless it is told ``signature_version="s3v4"``.
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl

from botocore.auth import HmacV1Auth

from halimede.core.media_types import essence
from halimede.hosting.errors import ApiError
from halimede.http1.head import Head

ALGORITHM = "AWS4-HMAC-SHA256"

_REQUIRED = tuple(
    f"X-Amz-{name}" for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature")
)
_REQUIRED_2 = ("AWSAccessKeyId", "Signature", "Expires")
_LONGEST_S = 7 * 24 * 3600
_SKEW = timedelta(minutes=15)
_VIRTUAL = ".localhost"
"""Below this, the first label of the host is a bucket."""


@dataclass(frozen=True, slots=True)
class Presigned:
    """What the query of a URL says that is presigned with version 4.

    Attributes:
        credential: as `KEY/DATE/REGION/s3/aws4_request`.
        headers: lower-case names of the headers that are signed.
        value: 64 hexadecimal digits.
        stamp: when it was signed.
        lifetime_s: for how long it is good.
    """

    credential: str
    headers: tuple[str, ...]
    value: str
    stamp: str
    lifetime_s: int


def parameters_of(head: Head) -> Mapping[str, str]:
    """The parameters of the query, "" for what cannot be read."""
    return dict(parse_qsl(head.query, keep_blank_values=True))


def read_presigned(head: Head) -> Presigned | None:
    """What a presigned URL says; None if the request has none.

    Raises:
        ApiError: there is something of one that makes no sense.
    """
    if "X-Amz-" not in head.query:
        return None
    parameters = parameters_of(head)
    if not parameters.keys() & {"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature"}:
        return None
    _check_only_one(head)
    missing = [name for name in _REQUIRED if not parameters.get(name)]
    if missing:
        _refuse(f"Query-string authentication version 4 requires the parameters {', '.join(_REQUIRED)}; "
                f"{', '.join(missing)} is missing")  # fmt: skip
    if parameters["X-Amz-Algorithm"] != ALGORITHM:
        _refuse(f"X-Amz-Algorithm only supports {ALGORITHM}, got '{parameters['X-Amz-Algorithm']}'")
    text = parameters["X-Amz-Expires"]
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= _LONGEST_S or len(text) > 9:
        _refuse(
            f"X-Amz-Expires must be a number of seconds from 1 to {_LONGEST_S} (a week), got '{text[:32]}'"
        )
    return Presigned(
        parameters["X-Amz-Credential"],
        tuple(parameters["X-Amz-SignedHeaders"].split(";")),
        parameters["X-Amz-Signature"],
        parameters["X-Amz-Date"],
        int(text),
    )


def check_time(signed: Presigned, day: str, now: datetime) -> None:
    """Whether a presigned URL is good now.

    Args:
        signed: what it says.
        day: that of its credential.
        now: the time.

    Raises:
        ApiError: it is not yet, or not any more (``AccessDenied``), or says no time.
    """
    try:
        moment = datetime.strptime(signed.stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        _refuse(f"X-Amz-Date must be in the format yyyyMMddTHHmmssZ, got '{signed.stamp[:32]}'")
    if not signed.stamp.startswith(day):
        _refuse(f"X-Amz-Date is {signed.stamp}, and X-Amz-Credential is of another day: {day[:32]}")
    if moment - now > _SKEW:
        msg = f"Request is not yet valid: it was signed at {signed.stamp}, and here it is {_stamp(now)}"
        raise ApiError("AccessDenied", msg, 403)
    _check_end(moment + timedelta(seconds=signed.lifetime_s), now)


def _check_end(end: datetime, now: datetime) -> None:
    if now > end:
        msg = f"Request has expired: it was good until {_stamp(end)}, and here it is {_stamp(now)}"
        raise ApiError("AccessDenied", msg, 403)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def check_kind(head: Head) -> None:
    """Refuse what a signature outside of the Authorization header cannot be for.

    Raises:
        ApiError: it is an upload by a form, or has a body of signed chunks (``NotImplemented``).
    """
    if head.headers.get("authorization"):
        return
    if essence(head.headers.get("content-type", "")) == "multipart/form-data":
        msg = "uploads by forms (presigned POST) are not available in this version; presign a PUT instead"
        raise ApiError("NotImplemented", msg, 501)
    if head.headers.get("x-amz-content-sha256", "").startswith("STREAMING-AWS4-"):
        msg = "bodies of signed chunks with presigned URLs are not available in this version; send the body as it is"
        raise ApiError("NotImplemented", msg, 501)


def signer_2(head: Head) -> str:
    """The access key of a URL that is presigned with version 2, "" if the request has none.

    Raises:
        ApiError: there is something of one that makes no sense.
    """
    if "Signature=" not in head.query or "AWSAccessKeyId=" not in head.query:
        return ""
    parameters = parameters_of(head)
    if not parameters.keys() >= {"AWSAccessKeyId", "Signature"}:
        return ""
    _check_only_one(head)
    missing = [name for name in _REQUIRED_2 if not parameters.get(name)]
    if missing:
        msg = f"Query-string authentication requires the parameters {', '.join(_REQUIRED_2)}; {missing[0]} is missing"
        raise ApiError("AccessDenied", msg, 403)
    return parameters["AWSAccessKeyId"]


def verify_2(head: Head, secret: str, now: datetime) -> None:
    """Whether a URL is presigned with version 2 and a secret, and good now.

    Raises:
        ApiError: it is not (``SignatureDoesNotMatch``, ``AccessDenied``; 403).
    """
    parameters = parameters_of(head)
    expires = parameters["Expires"]
    if not (expires.isascii() and expires.isdigit()) or len(expires) > 11:
        msg = f"Invalid date (should be seconds since epoch): '{expires[:32]}'"
        raise ApiError("AccessDenied", msg, 403)
    _check_end(datetime.fromtimestamp(int(expires), UTC), now)
    lines = [head.method, head.headers.get("content-md5", ""), head.headers.get("content-type", ""), expires]
    # such parameters stand for headers
    amazon = {name.lower(): value for name, value in (*parameters.items(), *head.headers.items())}
    lines += [
        f"{name}:{value.strip()}" for name, value in sorted(amazon.items()) if name.startswith("x-amz-")
    ]
    lines.append(
        HmacV1Auth(None).canonical_resource(SplitResult("", "", "", head.query, ""), auth_path=_path(head))
    )
    expected = hmac.digest(secret.encode(), "\n".join(lines).encode(), "sha1")
    if not hmac.compare_digest(base64.b64encode(expected), parameters["Signature"].encode()):
        raise wrong_signature(parameters["AWSAccessKeyId"])


def _path(head: Head) -> str:
    """The path of a request with its bucket, wherever that stands."""
    host = head.headers.get("host", "").partition(":")[0].lower()
    if host.endswith(_VIRTUAL):
        return f"/{host.removesuffix(_VIRTUAL)}{head.path}"
    # a bucket without a key: boto3 signs it so wherever it stands
    return head.path if "/" in head.path[1:] else f"{head.path}/"


def wrong_signature(access_key: str) -> ApiError:
    """S3's error for a signature that does not fit the request."""
    msg = (
        f"The request signature we calculated does not match the signature you provided. Check the secret of "
        f"access key {access_key}, that method, path, query and signed headers are those that were "
        f"signed, and that nothing on the way changes them"
    )
    return ApiError("SignatureDoesNotMatch", msg, 403)


def _check_only_one(head: Head) -> None:
    if head.headers.get("authorization"):
        msg = (
            "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string "
            "parameter or the Authorization header should be specified"
        )
        raise ApiError("InvalidArgument", msg)


def _refuse(why: str) -> NoReturn:
    raise ApiError("AuthorizationQueryParametersError", why)
