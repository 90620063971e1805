"""What a request asks of an object: that it is the one the client knows, and which of its bytes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from halimede.hosting.errors import ApiError
from halimede.hosting.store.failures import invalid_argument, precondition_failed
from halimede.hosting.store.records import Conditions, StoredObject

_COPY_SOURCE = "x-amz-copy-source-"


def check_read(headers: Mapping[str, str], stored: StoredObject, prefix: str = "") -> None:
    """Whether an object is to be read, as ``If-…`` headers ask (RFC 9110, section 13.2.2).

    Args:
        headers: the request's, by lower-case name.
        stored: the object.
        prefix: what the headers' names begin with.

    Raises:
        ApiError: it is not what the client asks for (412), or what it has already (304).
    """
    etag = stored.etag
    match, none_match = headers.get(prefix + "if-match"), headers.get(prefix + "if-none-match")
    modified = stored.modified.replace(microsecond=0)
    if match is not None:
        if not _lists(match, etag):
            raise precondition_failed(f"If-Match: the object has the ETag {etag}")
    elif (since := _time(headers.get(prefix + "if-unmodified-since"))) is not None and modified > since:
        raise precondition_failed("If-Unmodified-Since: the object was put later")
    if none_match is not None:
        if _lists(none_match, etag):
            raise _not_modified(stored, prefix)
    elif (since := _time(headers.get(prefix + "if-modified-since"))) is not None and modified <= since:
        raise _not_modified(stored, prefix)


def check_range(headers: Mapping[str, str], stored: StoredObject) -> bool:
    """Whether a range may be answered with a part of the object (``If-Range``, RFC 9110, section 13.1.5)."""
    condition = headers.get("if-range")
    if condition is None:
        return True
    if '"' in condition:
        return condition.strip() == f'"{stored.etag}"'
    return _time(condition) == stored.modified.replace(microsecond=0)


def check_copy(headers: Mapping[str, str], stored: StoredObject) -> None:
    """Whether an object is to be copied, as ``x-amz-copy-source-if-…`` headers ask.

    Raises:
        ApiError: it is not what the client asks for (412).
    """
    check_read(headers, stored, _COPY_SOURCE)


def write_conditions(headers: Mapping[str, str], account: str) -> Conditions:
    """What must hold of the object that a request of an account replaces.

    Raises:
        ApiError: it asks for what S3 does not know (``NotImplemented``).
    """
    none_match, match = headers.get("if-none-match", ""), headers.get("if-match", "")
    if none_match not in {"", "*"}:
        msg = (
            "A header you provided implies functionality that is not implemented: If-None-Match with an ETag"
        )
        raise ApiError("NotImplemented", msg, 501)
    return Conditions(bool(none_match), match.strip('"'), account)


def _not_modified(stored: StoredObject, prefix: str) -> ApiError:
    if prefix:
        return precondition_failed("the source is what If-None-Match or If-Modified-Since excludes")
    return ApiError("NotModified", "Not Modified", 304, {"ETag": f'"{stored.etag}"'})


def _lists(text: str, etag: str) -> bool:
    """Whether a list of ETags has this one, or is for any."""
    listed = {each.strip().removeprefix("W/").strip('"') for each in text.split(",")}
    return etag in listed or text.strip() == "*"


def _time(text: str | None) -> datetime | None:
    """A time; one that makes no sense asks for nothing (RFC 9110, section 13.1.3)."""
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Which bytes are asked for: first, and how many. None for all; several ranges are answered with all, as S3 does.

    Raises:
        ApiError: there are none such (``InvalidRange``).
    """
    if text is None:
        return None
    unit, _, ranges = text.partition("=")
    first, hyphen, last = ranges.strip().partition("-")
    if unit.strip().lower() != "bytes" or not hyphen or not _digits(first, last):
        return None
    if not first:
        length = min(int(last), size)
        begin = size - length
    else:
        begin = int(first)
        end = min(int(last), size - 1) if last else size - 1
        if last and int(last) < begin:
            return None
        length = end - begin + 1
    if length <= 0:
        fields: dict[str, object] = {"Content-Range": f"bytes */{size}"}
        msg = f"The requested range is not satisfiable: {text} of {size} bytes"
        raise ApiError("InvalidRange", msg, 416, fields)
    return begin, length


def copy_range(text: str | None, size: int) -> tuple[int, int]:
    """Which bytes of a source are to be copied: first, and how many.

    Raises:
        ApiError: the text is no range, or goes beyond the source (``InvalidArgument``).
    """
    if text is None:
        return 0, size
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not text.startswith("bytes=") or not first or not last or not _digits(first, last):
        raise invalid_argument(f"x-amz-copy-source-range must be bytes=FIRST-LAST, got '{text}'")
    begin, end = int(first), int(last)
    if begin > end or end >= size:
        raise invalid_argument(f"Range specified is not valid for source object of size: {size}")
    return begin, end - begin + 1


def _digits(first: str, last: str) -> bool:
    both = first + last
    return bool(both) and both.isascii() and both.isdigit() and len(both) <= 40
