"""S3's operations of uploads in parts."""

import asyncio
from collections.abc import Sequence

from halimede.core.tasks import Tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import response_head
from halimede.hosting.store import body, checksums, s3_xml
from halimede.hosting.store.body import Body
from halimede.hosting.store.checksums import Checksum
from halimede.hosting.store.conditions import check_copy, copy_range, write_conditions
from halimede.hosting.store.failures import invalid_argument
from halimede.hosting.store.list_operations import encoding
from halimede.hosting.store.object_headers import kept_headers
from halimede.hosting.store.object_operations import copy_source
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.records import Part, StoredObject, Upload
from halimede.hosting.store.s3_call import S3Call

_MAX_PARTS = 10_000
_SMALLEST_PART_BYTES = 5 << 20
_XML_BYTES = 8 << 20
_PATIENCE_S = 10.0
"""After so long without an answer, a client is sent white space, lest it give up: an object of many gigabytes is not
put together at once."""


async def create_multipart_upload(store: ObjectStore, call: S3Call) -> None:
    """``CreateMultipartUpload``."""
    call.check("s3:PutObject")
    algorithm = call.headers.get("x-amz-checksum-algorithm", "").upper()
    kind = call.headers.get("x-amz-checksum-type", "").upper()
    if algorithm:
        checksums.check_algorithm(algorithm)
        kind = kind or checksums.usual_kind(algorithm)
        checksums.check_kind(algorithm, kind)
    elif kind:
        raise ApiError("InvalidRequest", "The x-amz-checksum-type header needs x-amz-checksum-algorithm")
    headers = kept_headers(call.headers)
    upload = await store.create_upload(call.bucket, call.object_key, headers, algorithm, kind)
    answer = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)] if algorithm else []
    content = [("Bucket", call.bucket), ("Key", call.object_key), ("UploadId", upload.id)]
    call.answer_xml("InitiateMultipartUploadResult", content, answer)


async def upload_part(store: ObjectStore, call: S3Call) -> None:
    """``UploadPart``."""
    call.check("s3:PutObject")
    upload, number = await _upload(store, call), _part_number(call)
    blob = await store.new_blob(max(call.request.head.length, 0))
    try:
        content = Body(call.request, call.access, blob.write, upload.algorithm)
        await body.receive(call.request, content, store)
    except BaseException:
        await store.discard(blob)
        raise
    part = await store.put_part(upload, number, blob, content.checksum)
    headers = [("ETag", f'"{part.etag}"')]
    if part.checksum is not None:
        headers.append((part.checksum.header, part.checksum.value))
    call.answer(headers=headers)


async def upload_part_copy(store: ObjectStore, call: S3Call) -> None:
    """``UploadPartCopy``."""
    call.check("s3:GetObject")
    call.check("s3:PutObject")
    upload, number = await _upload(store, call), _part_number(call)
    found, file = await store.open_object(*copy_source(store, call))
    with file:
        check_copy(call.headers, found)
        begin, length = copy_range(call.headers.get("x-amz-copy-source-range"), found.size)
        part = await store.copy_part(upload, number, file, begin, length)
    content: list[s3_xml.Element] = [
        ("ETag", f'"{part.etag}"'),
        ("LastModified", s3_xml.timestamp(part.modified)),
    ]
    call.answer_xml("CopyPartResult", content + _checksum(part.checksum))


async def list_parts(store: ObjectStore, call: S3Call) -> None:
    """``ListParts``."""
    call.check("s3:ListMultipartUploadParts")
    upload = await _upload(store, call)
    after = call.number("part-number-marker", 0, _MAX_PARTS)
    limit = call.number("max-parts", 1000, 1000)
    parts = await store.parts(upload, after, limit + 1)
    shown = parts[:limit]
    content: list[s3_xml.Element] = [
        ("Bucket", call.bucket),
        ("Key", call.object_key),
        ("UploadId", upload.id),
        ("PartNumberMarker", str(after)),
        ("NextPartNumberMarker", str(shown[-1].number if shown else after)),
        ("MaxParts", str(limit)),
        ("IsTruncated", "true" if len(parts) > limit else "false"),
        ("StorageClass", "STANDARD"),
    ]
    if upload.algorithm:
        content += [("ChecksumAlgorithm", upload.algorithm), ("ChecksumType", upload.checksum_kind)]
    for part in shown:
        about: list[s3_xml.Element] = [
            ("PartNumber", str(part.number)),
            ("LastModified", s3_xml.timestamp(part.modified)),
            ("ETag", f'"{part.etag}"'),
            ("Size", str(part.size)),
        ]
        content.append(("Part", about + _checksum(part.checksum)))
    call.answer_xml("ListPartsResult", content)


async def list_multipart_uploads(store: ObjectStore, call: S3Call) -> None:
    """``ListMultipartUploads``."""
    call.check("s3:ListBucketMultipartUploads")
    encode = encoding(call)
    prefix = call.parameters.get("prefix", "")
    key_marker, id_marker = call.parameters.get("key-marker", ""), call.parameters.get("upload-id-marker", "")
    after = (
        key_marker,
        id_marker or "\x7f",
    )  # above all ids: without one, the key's uploads have all been told
    limit = call.number("max-uploads", 1000, 1000)
    uploads = await store.uploads(call.bucket, prefix, after if key_marker else ("", ""), limit + 1)
    shown = uploads[:limit]
    content: list[s3_xml.Element] = [
        ("Bucket", call.bucket),
        ("KeyMarker", encode(key_marker)),
        ("UploadIdMarker", id_marker),
        ("Prefix", encode(prefix)),
        ("MaxUploads", str(limit)),
        ("IsTruncated", "true" if len(uploads) > limit else "false"),
    ]
    if "encoding-type" in call.parameters:
        content.append(("EncodingType", "url"))
    if len(uploads) > limit and shown:
        content += [("NextKeyMarker", encode(shown[-1].key)), ("NextUploadIdMarker", shown[-1].id)]
    for upload in shown:
        about = [
            ("Key", encode(upload.key)),
            ("UploadId", upload.id),
            ("Initiated", s3_xml.timestamp(upload.begun)),
        ]
        content.append(("Upload", about))
    call.answer_xml("ListMultipartUploadsResult", content)


async def abort_multipart_upload(store: ObjectStore, call: S3Call) -> None:
    """``AbortMultipartUpload``."""
    call.check("s3:AbortMultipartUpload")
    await store.abort(call.bucket, call.object_key, call.parameters["uploadId"])
    call.answer(204)


async def complete_multipart_upload(store: ObjectStore, call: S3Call) -> None:
    """``CompleteMultipartUpload``."""
    call.check("s3:PutObject")
    conditions = write_conditions(call.headers, call.caller.account)
    data = await body.read(call.request, call.access, store, _XML_BYTES, header_checksum=False)
    upload = await _upload(store, call)
    named = (await s3_xml.read(data, "CompleteMultipartUpload")).all("Part")
    parts = _named_parts(named, await store.parts(upload))
    _check_size(parts, call.headers.get("x-amz-mp-object-size"))
    expected = checksums.declared(call.headers)
    await store.check(call.bucket, call.object_key, conditions)
    async with Tasks() as tasks:
        await _answer_later(call, tasks.submit(store.complete(upload, parts, expected, conditions)))


async def _answer_later(call: S3Call, work: "asyncio.Future[StoredObject]") -> None:
    """Answer when an object has been put together; the status goes out before, if that takes long."""
    done, _ = await asyncio.wait({work}, timeout=_PATIENCE_S)
    if done or not call.request.head.chunked:
        call.answer_xml("CompleteMultipartUploadResult", _completed(call, await work))
        return
    request = call.request
    headers = [
        ("Content-Type", "application/xml"),
        ("Transfer-Encoding", "chunked"),
        ("x-amz-request-id", call.id),
    ]
    request.begin(response_head(200, headers))
    request.write(_chunk(s3_xml.DECLARATION))
    while not done:
        request.write(_chunk(b" "))
        done, _ = await asyncio.wait({work}, timeout=_PATIENCE_S)
    try:
        answer = s3_xml.element("CompleteMultipartUploadResult", _completed(call, work.result()))
    except ApiError as error:
        answer = call.error_element(error)
    request.write(_chunk(answer) + b"0\r\n\r\n")
    request.end()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _completed(call: S3Call, stored: StoredObject) -> list[s3_xml.Element]:
    content: list[s3_xml.Element] = [
        ("Location", f"/{call.bucket}/{call.object_key}"),
        ("Bucket", call.bucket),
        ("Key", call.object_key),
        ("ETag", f'"{stored.etag}"'),
    ]
    kind = [] if stored.checksum is None else [("ChecksumType", stored.checksum.kind)]
    return content + _checksum(stored.checksum) + kind


def _checksum(checksum: Checksum | None) -> list[s3_xml.Element]:
    return [] if checksum is None else [(f"Checksum{checksum.algorithm}", checksum.value)]


async def _upload(store: ObjectStore, call: S3Call) -> Upload:
    return await store.upload(call.bucket, call.object_key, call.parameters["uploadId"])


def _part_number(call: S3Call) -> int:
    number = call.number("partNumber", 0, _MAX_PARTS + 1)
    if not 1 <= number <= _MAX_PARTS:
        raise invalid_argument(f"Part number must be an integer between 1 and {_MAX_PARTS}, inclusive")
    return number


def _named_parts(named: Sequence[s3_xml.Node], parts: Sequence[Part]) -> list[Part]:
    """The parts that a client names.

    Raises:
        ApiError: they are not what there is (``InvalidPart``), or not in order (``InvalidPartOrder``).
    """
    known = {str(part.number): part for part in parts}
    found: list[Part] = []
    if not named:
        raise ApiError("MalformedXML", "You must specify at least one part")
    for node in named:
        number, etag = node.value("PartNumber").strip(), node.value("ETag").strip().strip('"')
        part = known.get(number)
        if part is None or etag != part.etag or not _has_checksum(node, part.checksum):
            there = "there is no such part" if part is None else f"its ETag is {part.etag}"
            msg = (
                f"One or more of the specified parts could not be found: part {number} with ETag {etag}; {there}, and "
                "a checksum must be the one that the part was uploaded with"
            )
            raise ApiError("InvalidPart", msg)
        if found and part.number <= found[-1].number:
            msg = "The list of parts was not in ascending order. Parts must be ordered by part number"
            raise ApiError("InvalidPartOrder", msg)
        found.append(part)
    return found


def _has_checksum(node: s3_xml.Node, checksum: Checksum | None) -> bool:
    """Whether the checksums that a client names with a part are the part's, as far as that has one."""
    return checksum is None or node.value(f"Checksum{checksum.algorithm}").strip() in {"", checksum.value}


def _check_size(parts: Sequence[Part], declared: str | None) -> None:
    for part in parts[:-1]:
        if part.size < _SMALLEST_PART_BYTES:
            msg = (
                f"Your proposed upload is smaller than the minimum allowed size: part {part.number} has {part.size} "
                f"bytes, and all but the last need {_SMALLEST_PART_BYTES}"
            )
            raise ApiError("EntityTooSmall", msg)
    size = sum(part.size for part in parts)
    if declared is not None and declared != str(size):
        msg = f"The provided 'x-amz-mp-object-size' header does not match what was computed: {size} bytes"
        raise ApiError("InvalidRequest", msg)
