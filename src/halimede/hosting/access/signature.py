"""Signatures of requests (AWS Signature Version 4): what they say, and whether they are right."""

import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from urllib.parse import quote

from botocore.utils import normalize_url_path

from halimede.hosting.access.presigned import (
    ALGORITHM,
    Presigned,
    check_time,
    read_presigned,
    wrong_signature,
)
from halimede.hosting.access.refusals import Reason, RefusedError
from halimede.hosting.errors import ApiError
from halimede.http1.head import Head

_REQUEST = "aws4_request"
_CREDENTIAL_PARTS = 5
_CONTENT_HASH = "x-amz-content-sha256"
_SKEW = timedelta(minutes=15)
"""By which a client's clock may differ, as AWS has it."""

_REGION = re.compile(r"[a-z0-9-]{1,64}")

_UNSIGNED = ("x-amzn-trace-id",)
"""Headers of AWS's that clients do not sign, as what is on the way may change them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the Authorization header of a request says, or its query if that is presigned.

    Attributes:
        access_key: who says to have signed.
        date: the day, ``YYYYMMDD``.
        region: for which region.
        service: for which service, such as ``sagemaker`` or ``s3``.
        headers: lower-case names of the headers that are signed.
        value: 64 hexadecimal digits.
        presigned: what else the query says.
    """

    access_key: str
    date: str
    region: str
    service: str
    headers: tuple[str, ...]
    value: str
    presigned: Presigned | None = None


def read_signature(head: Head) -> Signature | None:
    """The signature of a request, None for an unsigned one.

    Raises:
        ApiError: there is one that makes no sense (``IncompleteSignatureException``; of a presigned URL
            ``AuthorizationQueryParametersError``).
    """
    presigned = read_presigned(head)
    if presigned is not None:
        scope = _scope(presigned.credential)
        if scope is None or scope[3] != "s3":
            msg = (
                f"X-Amz-Credential must be KEY/DATE/REGION/s3/aws4_request, got '{presigned.credential[:128]}'; only "
                f"requests for S3 can be presigned"
            )
            raise ApiError("AuthorizationQueryParametersError", msg)
        return Signature(*scope, presigned.headers, presigned.value, presigned)
    text = head.headers.get("authorization")
    if not text:
        return None
    algorithm, _, rest = text.partition(" ")
    if algorithm != ALGORITHM:
        # without a space it may be anything, such as a secret
        what = f"The algorithm '{algorithm}'" if rest else "The kind of the Authorization header"
        msg = f"{what} is not supported; use {ALGORITHM}"
        raise RefusedError(Reason.WRONG_KIND, msg)
    parts = (field.partition("=") for field in rest.split(","))
    fields = {name.strip(): value.strip() for name, _, value in parts}
    missing = [name for name in ("Credential", "SignedHeaders", "Signature") if not fields.get(name)]
    if missing:
        raise _incomplete(f"The Authorization header lacks {', '.join(missing)}")
    scope = _scope(fields["Credential"])
    if scope is None:
        raise _incomplete(
            f"'{fields['Credential']}' is no credential: it should be KEY/DATE/REGION/SERVICE/aws4_request"
        )
    return Signature(*scope, tuple(fields["SignedHeaders"].split(";")), fields["Signature"])


def claimed_region(authorization: str) -> str:
    """The region of the credential with which an Authorization header begins; "" if it begins with none."""
    scope = _claimed(authorization)
    return "" if scope is None else scope[2]


def claimed_service(authorization: str) -> str:
    """The service for which an Authorization header says to sign; "" if it names none."""
    scope = _claimed(authorization.partition(",")[0])
    return "" if scope is None else scope[3]


def _claimed(credential: str) -> tuple[str, str, str, str] | None:
    """Key, date, region and service of the first part of an Authorization header; None if it is no credential."""
    _, found, scope = credential.partition(f"{ALGORITHM} Credential=")
    return _scope(scope.strip()) if found else None


def _scope(credential: str) -> tuple[str, str, str, str] | None:
    """Key, date, region and service of a credential; None if it is none."""
    scope = credential.split("/")
    if len(scope) != _CREDENTIAL_PARTS or scope[-1] != _REQUEST or not _REGION.fullmatch(scope[2]):
        return None
    key, date, region, service, _ = scope
    return key, date, region, service


def verify(
    head: Head, target: str, digest: str | None, signature: Signature, secret: str, now: datetime
) -> None:
    """Whether a request was signed with the secret, and lately.

    Args:
        head: the request's.
        target: path and query as they were sent.
        digest: the SHA-256 of its body, in hexadecimal digits; None if the signature covers only the one that a header
            says, which whoever reads the body has to hold against it.
        signature: what it says.
        secret: of the signature's access key.
        now: the time.

    Raises:
        ApiError: it was not (``InvalidSignatureException``, 403), or something that must be signed is not.
    """
    if signature.presigned is not None:
        _verify_presigned(head, target, signature, signature.presigned, secret, now)
        return
    stamp = head.headers.get("x-amz-date", "")
    try:
        moment = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        msg = f"The header X-Amz-Date is missing or is no time: '{stamp}'"
        raise RefusedError(Reason.NO_TIME, msg) from None
    _check_current(stamp, moment, now)
    if not stamp.startswith(signature.date):
        msg = (
            f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            f"'{signature.date}' != '{stamp[:8]}', from '{stamp}'"
        )
        raise RefusedError(Reason.WRONG_SCOPE, msg)
    unsigned = _unsigned(head, signature)
    if unsigned:
        msg = f"There were headers present in the request which were not signed: {', '.join(unsigned)}"
        raise RefusedError(Reason.NOT_SIGNED, f"{msg}; host and all X-Amz headers must be")
    said = head.headers.get(_CONTENT_HASH)
    if said is None and digest is None:
        msg = "Missing required header for this request: x-amz-content-sha256; the signature covers the body by it"
        raise RefusedError(Reason.NO_HASH, msg)
    if said is not None and digest is not None and said != digest:
        msg = f"The header X-Amz-Content-SHA256 says {said}, and the hash of the body is {digest}"
        raise RefusedError(Reason.WRONG_BODY, msg)
    expected = _sign(head, target, said or digest or "", signature, secret, stamp)
    if not hmac.compare_digest(expected.encode(), signature.value.encode()):
        msg = (
            f"The request signature we calculated does not match the signature you provided. Check the secret of "
            f"access key {signature.access_key}, and that nothing on the way changes the request"
        )
        raise RefusedError(Reason.WRONG_SIGNATURE, msg)


def _check_current(stamp: str, moment: datetime, now: datetime) -> None:
    """Refuse a signature of another time.

    Raises:
        ApiError: it is.
    """
    skew = now - moment
    if abs(skew) <= _SKEW:
        return
    is_old = skew > _SKEW
    limit, sign = (now - _SKEW, "-") if is_old else (now + _SKEW, "+")
    what = "Signature expired" if is_old else "Signature not yet current"
    how = "is now earlier than" if is_old else "is still later than"
    msg = f"{what}: {stamp} {how} {_stamp(limit)} ({_stamp(now)} {sign} {_SKEW.seconds // 60} min.)"
    raise RefusedError(Reason.NOT_CURRENT, msg)


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%SZ}"


def _verify_presigned(
    head: Head, target: str, signature: Signature, presigned: Presigned, secret: str, now: datetime
) -> None:
    """Whether a URL was presigned with the secret, and is good now.

    Raises:
        ApiError: it was not (``SignatureDoesNotMatch``), or is not any more (``AccessDenied``; 403).
    """
    check_time(presigned, signature.date, now)
    unsigned = _unsigned(head, signature)
    if unsigned:
        msg = f"There were headers present in the request which were not signed: {', '.join(unsigned)}"
        raise ApiError("AccessDenied", msg, 403)
    digest = head.headers.get(_CONTENT_HASH, "UNSIGNED-PAYLOAD")
    expected = _sign(head, target, digest, signature, secret, presigned.stamp)
    if not hmac.compare_digest(expected.encode(), signature.value.encode()):
        raise wrong_signature(signature.access_key)


def _unsigned(head: Head, signature: Signature) -> list[str]:
    """The headers that must be signed and are not."""
    required = {
        "host",
        *(name for name in head.headers if name.startswith("x-amz") and name not in _UNSIGNED),
    }
    return sorted(required - set(signature.headers))


def _sign(head: Head, target: str, digest: str, signature: Signature, secret: str, stamp: str) -> str:
    """What the signature should be; it is no part of what it covers."""
    path, _, query = target.partition("?")
    if signature.service != "s3":  # which takes paths as they are
        path = quote(normalize_url_path(path), safe="/~")
    headers = [f"{name}:{' '.join(head.headers.get(name, '').split())}" for name in signature.headers]
    canonical = (
        head.method, path, _canonical_query(query), *headers, "", ";".join(signature.headers), digest
    )  # fmt: skip
    scope = (signature.date, signature.region, signature.service, _REQUEST)
    text = (ALGORITHM, stamp, "/".join(scope), sha256("\n".join(canonical).encode("latin-1")).hexdigest())
    key = f"AWS4{secret}".encode()
    for part in (*scope, "\n".join(text)):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def _canonical_query(query: str) -> str:
    """The parameters as they were sent, in the order of their names."""
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    covered = sorted((name, value) for name, _, value in pairs if name != "X-Amz-Signature")
    return "&".join(f"{name}={value}" for name, value in covered)


def _incomplete(why: str) -> RefusedError:
    return RefusedError(Reason.MALFORMED, why)
