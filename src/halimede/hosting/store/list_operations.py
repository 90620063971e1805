"""S3's operations that list objects."""

import base64
import binascii
from collections.abc import Callable, Iterable
from urllib.parse import quote

from halimede.hosting.store import s3_xml
from halimede.hosting.store.failures import invalid_argument
from halimede.hosting.store.listing import Listing, Page
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.s3_call import S3Call

_MAX_KEYS = 1000

Encode = Callable[[str], str]


async def list_objects(store: ObjectStore, call: S3Call) -> None:
    """``ListObjects``, version 1."""
    call.check("s3:ListBucket")
    encode = encoding(call)
    marker = call.parameters.get("marker", "")
    listing = _listing(call, marker)
    page = await store.page(call.bucket, listing)
    content: list[s3_xml.Element] = [("Name", call.bucket), ("Marker", encode(marker))]
    if page.is_truncated and listing.delimiter:
        content.append(("NextMarker", encode(page.last)))
    call.answer_xml("ListBucketResult", content + _contents(call, listing, page, owner=True))


async def list_objects_v2(store: ObjectStore, call: S3Call) -> None:
    """``ListObjectsV2``."""
    call.check("s3:ListBucket")
    if call.parameters["list-type"] != "2":
        raise invalid_argument(f"list-type must be 2, got '{call.parameters['list-type']}'")
    encode = encoding(call)
    token, start = call.parameters.get("continuation-token"), call.parameters.get("start-after", "")
    listing = _listing(call, start if token is None else _after(token))
    page = await store.page(call.bucket, listing)
    content: list[s3_xml.Element] = [
        ("Name", call.bucket),
        ("KeyCount", str(len(page.objects) + len(page.groups))),
    ]
    if start:
        content.append(("StartAfter", encode(start)))
    if token is not None:
        content.append(("ContinuationToken", token))
    if page.is_truncated:
        content.append(("NextContinuationToken", base64.urlsafe_b64encode(page.last.encode()).decode()))
    owner = call.parameters.get("fetch-owner") == "true"
    call.answer_xml("ListBucketResult", content + _contents(call, listing, page, owner=owner))


def _after(token: str) -> str:
    """Where a page goes on."""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid_argument("The continuation token provided is incorrect") from None


def _listing(call: S3Call, after: str) -> Listing:
    parameters = call.parameters
    limit = call.number("max-keys", _MAX_KEYS, _MAX_KEYS)
    return Listing(parameters.get("prefix", ""), parameters.get("delimiter", ""), after, limit)


def encoding(call: S3Call) -> Encode:
    """How keys are written in an answer: as they are, or percent-encoded as the client asks for.

    Raises:
        ApiError: it asks for another encoding (``InvalidArgument``).
    """
    kind = call.parameters.get("encoding-type")
    if kind is None:
        return str
    if kind != "url":
        raise invalid_argument(f"Invalid Encoding Method specified in Request: '{kind}'; there is url")
    return lambda text: quote(text, safe="/")


def _contents(call: S3Call, listing: Listing, page: Page, *, owner: bool) -> list[s3_xml.Element]:
    """What both versions have."""
    encode = encoding(call)
    content: list[s3_xml.Element] = [("Prefix", encode(listing.prefix)), ("MaxKeys", str(listing.limit))]
    if listing.delimiter:
        content.append(("Delimiter", encode(listing.delimiter)))
    if "encoding-type" in call.parameters:
        content.append(("EncodingType", "url"))
    content.append(("IsTruncated", "true" if page.is_truncated else "false"))
    account = call.caller.account if owner else ""
    content += [("Contents", _object(encode(key), stored, account)) for key, stored in page.objects]
    return content + _groups(encode, page.groups)


def _groups(encode: Encode, names: Iterable[str]) -> list[s3_xml.Element]:
    """What keys have in common up to a delimiter."""
    return [("CommonPrefixes", [("Prefix", encode(name))]) for name in names]


def _object(key: str, stored: StoredObject, account: str) -> list[s3_xml.Element]:
    content: list[s3_xml.Element] = [
        ("Key", key),
        ("LastModified", s3_xml.timestamp(stored.modified)),
        ("ETag", f'"{stored.etag}"'),
    ]
    if stored.checksum is not None:
        content += [
            ("ChecksumAlgorithm", stored.checksum.algorithm),
            ("ChecksumType", stored.checksum.kind),
        ]
    content.append(("Size", str(stored.size)))
    if account:
        content.append(("Owner", [("ID", account)]))
    content.append(("StorageClass", "STANDARD"))
    return content
