"""Headers of objects: what is kept with an object when it is put, and sent with it when it is got."""

from collections.abc import Mapping
from email.utils import format_datetime

from halimede.hosting.errors import ApiError
from halimede.hosting.store.failures import invalid_argument, not_implemented
from halimede.hosting.store.records import StoredObject

_METADATA = "x-amz-meta-"
_METADATA_BYTES = 2048
_KEPT = (
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
)
_USUAL_TYPE = "binary/octet-stream"
_REFUSED = (
    "x-amz-tagging",
    "x-amz-website-redirect-location",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-write-offset-bytes",
)
"""What a client would wrongly believe to have been done."""

_APART = "sandbox allow-scripts"
"""An object that a browser shows is no page of this host: it may neither read nor ask what the console's pages may."""

_OVERRIDES = {f"response-{name}": name for name in _KEPT}
OVERRIDES = frozenset(_OVERRIDES)
"""Parameters of a query that change headers of the answer."""


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What is kept of a request's headers.

    Raises:
        ApiError: one asks for what this store does not do, or there is too much metadata.
    """
    for name in _REFUSED:
        if name in headers:
            raise not_implemented(f"the header {name}")
    kept = {name: headers[name] for name in _KEPT if headers.get(name)}
    codings = [coding.strip() for coding in kept.pop("content-encoding", "").split(",")]
    codings = [coding for coding in codings if coding and coding.lower() != "aws-chunked"]
    if codings:
        kept["content-encoding"] = ", ".join(codings)
    kept.setdefault("content-type", _USUAL_TYPE)
    metadata = {name: value for name, value in headers.items() if name.startswith(_METADATA)}
    size = sum(len(name) - len(_METADATA) + len(value) for name, value in metadata.items())
    if size > _METADATA_BYTES:
        msg = f"Your metadata headers exceed the maximum allowed metadata size: {size} of {_METADATA_BYTES} bytes"
        raise ApiError("MetadataTooLarge", msg)
    return kept | metadata


def sent_headers(
    stored: StoredObject, parameters: Mapping[str, str], *, checksum: bool = False
) -> list[tuple[str, str]]:
    """What is sent with an object.

    Args:
        stored: the object.
        parameters: those of the query.
        checksum: the client asks for the checksum, and gets all of the object.

    Raises:
        ApiError: a parameter cannot be a header (``InvalidArgument``).
    """
    headers = dict(stored.headers)
    for parameter, name in _OVERRIDES.items():
        if parameter in parameters:
            headers[name] = value = parameters[parameter]
            if not value.isprintable() or not value.isascii():
                raise invalid_argument(f"{parameter} must be printable ASCII")
    answer = [
        *headers.items(),
        ("ETag", f'"{stored.etag}"'),
        ("Last-Modified", format_datetime(stored.modified, usegmt=True)),
        ("Accept-Ranges", "bytes"),
        ("Content-Security-Policy", _APART),
    ]
    if checksum and stored.checksum is not None:
        answer.append((stored.checksum.header, stored.checksum.value))
        answer.append(("x-amz-checksum-type", stored.checksum.kind))
    return answer
