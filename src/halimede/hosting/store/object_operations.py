"""S3's operations on objects."""

from halimede.hosting.errors import ApiError
from halimede.hosting.store import body, download, s3_xml
from halimede.hosting.store.body import Body
from halimede.hosting.store.conditions import (
    check_copy,
    check_range,
    check_read,
    read_range,
    write_conditions,
)
from halimede.hosting.store.failures import invalid_argument, not_implemented
from halimede.hosting.store.object_headers import kept_headers, sent_headers
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.s3_call import S3Call, decode

_XML_BYTES = 4 << 20
_MAX_DELETED = 1000


async def put_object(store: ObjectStore, call: S3Call) -> None:
    """``PutObject``."""
    call.check("s3:PutObject")
    headers, conditions = kept_headers(call.headers), write_conditions(call.headers, call.caller.account)
    await store.check(call.bucket, call.object_key, conditions)
    blob = await store.new_blob(max(call.request.head.length, 0))
    try:
        content = Body(call.request, call.access, blob.write)
        await body.receive(call.request, content, store)
    except BaseException:
        await store.discard(blob)
        raise
    stored = await store.put(call.bucket, call.object_key, blob, headers, content.checksum, conditions)
    call.answer(headers=(("ETag", f'"{stored.etag}"'), *checksum_headers(stored)))


def checksum_headers(stored: StoredObject) -> list[tuple[str, str]]:
    """The headers with an object's checksum, if it has one."""
    checksum = stored.checksum
    return (
        []
        if checksum is None
        else [(checksum.header, checksum.value), ("x-amz-checksum-type", checksum.kind)]
    )


async def get_object(store: ObjectStore, call: S3Call) -> None:
    """``GetObject``."""
    call.check("s3:GetObject")
    stored, file = await store.open_object(call.bucket, call.object_key)
    with file:
        status, headers, extent = _answer(call, stored)
        await download.send(call.request, status, headers, file, extent, store)


async def head_object(store: ObjectStore, call: S3Call) -> None:
    """``HeadObject``."""
    call.check("s3:GetObject")
    stored = await store.object(call.bucket, call.object_key)
    status, headers, (_, length) = _answer(call, stored)
    call.answer_head(status, length, headers)


def _answer(call: S3Call, stored: StoredObject) -> tuple[int, list[tuple[str, str]], tuple[int, int]]:
    """Status and headers of an object, and which of its bytes."""
    check_read(call.headers, stored)
    wanted = None
    if check_range(call.headers, stored):
        wanted = read_range(call.headers.get("range"), stored.size)
    asked = call.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
    headers = sent_headers(stored, call.parameters, checksum=asked and wanted is None)
    headers.append(("x-amz-request-id", call.id))
    if wanted is None:
        return 200, headers, (0, stored.size)
    begin, length = wanted
    headers.append(("Content-Range", f"bytes {begin}-{begin + length - 1}/{stored.size}"))
    return 206, headers, wanted


async def copy_object(store: ObjectStore, call: S3Call) -> None:
    """``CopyObject``."""
    call.check("s3:GetObject")
    call.check("s3:PutObject")
    source = copy_source(store, call)
    directive = call.headers.get("x-amz-metadata-directive", "COPY")
    if directive not in {"COPY", "REPLACE"}:
        raise invalid_argument(f"Unknown metadata directive: '{directive}'; there are COPY and REPLACE")
    replaced = kept_headers(call.headers)
    target = (call.bucket, call.object_key)
    if directive == "COPY" and source == target:
        msg = (
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata; use the metadata directive REPLACE"
        )
        raise ApiError("InvalidRequest", msg)
    stored = await store.copy(
        source,
        target,
        replaced if directive == "REPLACE" else None,
        lambda found: check_copy(call.headers, found),
        write_conditions(call.headers, call.caller.account),
    )
    content: list[s3_xml.Element] = [
        ("ETag", f'"{stored.etag}"'),
        ("LastModified", s3_xml.timestamp(stored.modified)),
    ]
    if stored.checksum is not None:
        content.append((f"Checksum{stored.checksum.algorithm}", stored.checksum.value))
    call.answer_xml("CopyObjectResult", content)


def copy_source(store: ObjectStore, call: S3Call) -> tuple[str, str]:
    """Bucket and key of the object that is to be copied.

    Raises:
        ApiError: the header names none (``InvalidArgument``), a version of one (``NotImplemented``), or one in another
            account's bucket (``AccessDenied``).
    """
    path, mark, version = call.headers["x-amz-copy-source"].partition("?versionId=")
    if mark and version != "null":
        raise not_implemented("versions of objects")
    bucket, _, key = decode(path).removeprefix("/").partition("/")
    if not bucket or not key:
        raise invalid_argument(
            f"Copy Source must mention the source bucket and key: sourcebucket/sourcekey, got '{path}'"
        )
    call.check_owner(bucket, store.owner(bucket))
    return bucket, key


async def get_object_tagging(store: ObjectStore, call: S3Call) -> None:
    """``GetObjectTagging``: objects of this store have no tags. AWS's command line asks before it copies."""
    call.check("s3:GetObjectTagging")
    await store.object(call.bucket, call.object_key)
    call.answer_xml("Tagging", [("TagSet", "")])


async def delete_object(store: ObjectStore, call: S3Call) -> None:
    """``DeleteObject``."""
    call.check("s3:DeleteObject")
    if "if-match" in call.headers:
        raise not_implemented("the header If-Match on DELETE")
    await store.delete(call.bucket, [call.object_key])
    call.answer(204)


async def delete_objects(store: ObjectStore, call: S3Call) -> None:
    """``DeleteObjects``."""
    call.check("s3:DeleteObject")
    data = await body.read(call.request, call.access, store, _XML_BYTES)
    root = await s3_xml.read(data, "Delete")
    objects = root.all("Object")
    if not 0 < len(objects) <= _MAX_DELETED or not all(node.value("Key") for node in objects):
        msg = (
            f"The XML you provided did not validate against our published schema: expected 1 to {_MAX_DELETED} "
            f"elements <Object> with a <Key>, got {len(objects)}"
        )
        raise ApiError("MalformedXML", msg)
    errors: list[s3_xml.Element] = []
    keys = []
    for node in objects:
        key = node.value("Key")
        if node.value("VersionId") not in {"", "null"} or node.all("ETag"):
            reason = "the object store of this host deletes no versions, and on no condition"
            errors.append(("Error", [("Key", key), ("Code", "NotImplemented"), ("Message", reason)]))
        else:
            keys.append(key)
    call.check_owner(
        call.bucket, store.owner(call.bucket)
    )  # it may be another one's since the body began to come
    await store.delete(call.bucket, keys)
    quiet = root.value("Quiet").lower() == "true"
    deleted: list[s3_xml.Element] = [] if quiet else [("Deleted", [("Key", key)]) for key in keys]
    call.answer_xml("DeleteResult", deleted + errors)
