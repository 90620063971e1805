"""Uploads in parts through boto3."""

import asyncio
import hashlib
import os
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from halimede.hosting.store import upload_operations
from halimede.hosting.store.object_store import ObjectStore
from tests.hosting.store.serving import StoreHost
from tests.hosting.store.test_objects import code_of, files

MIB = 1 << 20
TARGET = {"Bucket": "models", "Key": "big ü"}


def test_a_file_goes_up_and_down_in_parts(s3: Any, host: StoreHost, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(20 * MIB + 17))
    seen: list[int] = []
    s3.upload_file(
        str(source), "models", "big ü", Callback=seen.append, ExtraArgs={"ContentType": "application/gzip"}
    )
    head = s3.head_object(**TARGET, ChecksumMode="ENABLED")
    assert sum(seen) == head["ContentLength"] == 20 * MIB + 17
    assert head["ETag"].endswith('-3"')
    assert head["ContentType"] == "application/gzip"
    assert head["ChecksumCRC32"].endswith("-3")
    s3.download_file("models", "big ü", str(back), Config=TransferConfig(multipart_threshold=MIB))
    assert back.read_bytes() == source.read_bytes()
    assert len(files(host)) == 1


def begin(s3: Any, **settings: Any) -> dict[str, Any]:
    """Begin an upload; what its further calls need."""
    return {**TARGET, "UploadId": s3.create_multipart_upload(**TARGET, **settings)["UploadId"]}


def test_parts_in_any_order_again_and_without_some(s3: Any, host: StoreHost) -> None:
    upload = begin(s3, Metadata={"a": "b"})
    data = {number: os.urandom(5 * MIB) for number in (7, 3, 5)}
    etags = {
        number: s3.upload_part(**upload, PartNumber=number, Body=data[number])["ETag"] for number in data
    }
    data[3] = os.urandom(5 * MIB)
    etags[3] = s3.upload_part(**upload, PartNumber=3, Body=data[3])["ETag"]
    listed = s3.list_parts(**upload)["Parts"]
    assert [(part["PartNumber"], part["ETag"], part["Size"]) for part in listed] == [
        (number, etags[number], 5 * MIB) for number in (3, 5, 7)
    ]
    pages = s3.get_paginator("list_parts").paginate(**upload, PaginationConfig={"PageSize": 2})
    assert [[part["PartNumber"] for part in page["Parts"]] for page in pages] == [[3, 5], [7]]
    parts = [{"PartNumber": number, "ETag": etags[number]} for number in (3, 7)]
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    total = hashlib.md5(b"".join(hashlib.md5(data[number]).digest() for number in (3, 7)))
    assert done["ETag"] == f'"{total.hexdigest()}-2"'
    got = s3.get_object(**TARGET)
    assert got["Body"].read() == data[3] + data[7]
    assert got["Metadata"] == {"a": "b"}
    assert len(files(host)) == 1
    with pytest.raises(ClientError) as raised:
        s3.list_parts(**upload)
    assert code_of(raised) == ("NoSuchUpload", 404)


def test_an_upload_that_is_aborted_leaves_nothing(s3: Any, host: StoreHost) -> None:
    upload = begin(s3)
    s3.upload_part(**upload, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**upload)
    assert files(host) == []
    calls: list[Callable[[], Any]] = [
        lambda: s3.abort_multipart_upload(**upload),
        lambda: s3.upload_part(**upload, PartNumber=1, Body=b""),
    ]
    for call in calls:
        with pytest.raises(ClientError) as raised:
            call()
        assert code_of(raised) == ("NoSuchUpload", 404)
    assert files(host) == []


def test_uploads_that_are_not_complete_are_listed(s3: Any) -> None:
    ids = [begin(s3)["UploadId"] for _ in range(3)]
    other = s3.create_multipart_upload(Bucket="models", Key="another")["UploadId"]
    pages = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket="models", PaginationConfig={"PageSize": 2}
    )
    found = [(each["Key"], each["UploadId"]) for page in pages for each in page["Uploads"]]
    assert found == [("another", other), *(("big ü", upload) for upload in sorted(ids))]
    only = s3.list_multipart_uploads(Bucket="models", Prefix="big")["Uploads"]
    assert {each["UploadId"] for each in only} == set(ids)
    s3.delete_bucket(Bucket="models")


def test_parts_that_do_not_make_an_object(s3: Any) -> None:
    upload = begin(s3)
    etags = {number: s3.upload_part(**upload, PartNumber=number, Body=b"small")["ETag"] for number in (1, 2)}
    one, two = ({"PartNumber": number, "ETag": etags[number]} for number in (1, 2))
    for code, parts in (
        ("EntityTooSmall", [one, two]),
        ("InvalidPartOrder", [two, one]),
        ("InvalidPartOrder", [one, one]),
        ("InvalidPart", [one, {"PartNumber": 3, "ETag": etags[1]}]),
        ("InvalidPart", [{"PartNumber": 1, "ETag": '"0"'}]),
        ("MalformedXML", []),
    ):
        with pytest.raises(ClientError) as raised:
            s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        assert code_of(raised) == (code, 400)
    for number in (0, 10_001):
        with pytest.raises(ClientError) as raised:
            s3.upload_part(**upload, PartNumber=number, Body=b"")
        assert code_of(raised) == ("InvalidArgument", 400)
    with pytest.raises(ClientError) as raised:
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [one]}, MpuObjectSize=4)
    assert code_of(raised) == ("InvalidRequest", 400)
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [one]}, MpuObjectSize=5)


def crc(data: bytes) -> str:
    """A CRC32 as headers have it."""
    return b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_any_crc_of_a_whole_object_is_made_from_its_parts(s3: Any, algorithm: str) -> None:
    member = f"Checksum{algorithm}"
    upload = begin(s3, ChecksumAlgorithm=algorithm, ChecksumType="FULL_OBJECT")
    data = [os.urandom(5 * MIB), os.urandom(5 * MIB + 3), os.urandom(7)]
    parts = []
    for number, piece in enumerate(data, 1):
        done = s3.upload_part(**upload, PartNumber=number, Body=piece, ChecksumAlgorithm=algorithm)
        parts.append({"PartNumber": number, "ETag": done["ETag"], member: done[member]})
    call = {**upload, "MultipartUpload": {"Parts": parts}, "ChecksumType": "FULL_OBJECT"}
    whole = s3.complete_multipart_upload(**call)[member]
    again = s3.put_object(Bucket="models", Key="in-one", Body=b"".join(data), ChecksumAlgorithm=algorithm)
    assert again[member] == whole


def test_the_checksum_of_a_whole_object_is_made_from_its_parts(s3: Any) -> None:
    upload = begin(s3, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    data = [os.urandom(5 * MIB), os.urandom(5 * MIB + 3), os.urandom(7)]
    parts = []
    for number, piece in enumerate(data, 1):
        done = s3.upload_part(**upload, PartNumber=number, Body=piece)
        parts.append({"PartNumber": number, "ETag": done["ETag"], "ChecksumCRC32": done["ChecksumCRC32"]})
    call = {**upload, "MultipartUpload": {"Parts": parts}, "ChecksumType": "FULL_OBJECT"}
    with pytest.raises(ClientError) as raised:
        s3.complete_multipart_upload(**call, ChecksumCRC32=crc(b"other"))
    assert code_of(raised) == ("BadDigest", 400)
    whole = crc(b"".join(data))
    assert s3.complete_multipart_upload(**call, ChecksumCRC32=whole)["ChecksumCRC32"] == whole
    got = s3.get_object(**TARGET)  # boto3 holds the checksum against the bytes
    assert got["Body"].read() == b"".join(data)
    assert (got["ChecksumCRC32"], got["ChecksumType"]) == (whole, "FULL_OBJECT")


def test_checksums_that_do_not_go_together(s3: Any) -> None:
    for settings in (
        {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "COMPOSITE"},
        {"ChecksumAlgorithm": "SHA256", "ChecksumType": "FULL_OBJECT"},
        {"ChecksumAlgorithm": "ADLER"},
    ):
        with pytest.raises(ClientError) as raised:
            begin(s3, **settings)
        assert code_of(raised) == ("InvalidRequest", 400)
    upload = begin(s3, ChecksumAlgorithm="SHA256")
    with pytest.raises(ClientError, match="expected checksum Type: sha256") as raised:
        s3.upload_part(**upload, PartNumber=1, Body=b"x", ChecksumAlgorithm="SHA1")
    assert code_of(raised) == ("InvalidRequest", 400)


def test_parts_copied_from_objects(s3: Any) -> None:
    data = os.urandom(6 * MIB)
    s3.put_object(Bucket="models", Key="source", Body=data)
    upload = begin(s3, ChecksumAlgorithm="CRC32")
    source = {"CopySource": "models/source"}
    one = s3.upload_part_copy(**upload, **source, PartNumber=1, CopySourceRange=f"bytes=1-{5 * MIB}")
    two = s3.upload_part_copy(**upload, **source, PartNumber=2)
    parts = [
        {
            "PartNumber": number,
            "ETag": done["CopyPartResult"]["ETag"],
            "ChecksumCRC32": done["CopyPartResult"]["ChecksumCRC32"],
        }
        for number, done in ((1, one), (2, two))
    ]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(**TARGET)["Body"].read() == data[1 : 5 * MIB + 1] + data
    upload = begin(s3)
    for wrong in ("bytes=0-", "bytes=5-4", f"bytes=0-{6 * MIB}", "0-1"):
        with pytest.raises(ClientError) as raised:
            s3.upload_part_copy(**upload, **source, PartNumber=1, CopySourceRange=wrong)
        assert code_of(raised) == ("InvalidArgument", 400)


def test_a_large_object_is_copied_in_parts(s3: Any) -> None:
    data = os.urandom(12 * MIB)
    s3.put_object(Bucket="models", Key="source", Body=data)
    config = TransferConfig(multipart_threshold=8 * MIB)
    s3.copy({"Bucket": "models", "Key": "source"}, "models", "copy", Config=config)
    got = s3.get_object(Bucket="models", Key="copy")
    assert got["Body"].read() == data
    assert got["ETag"].endswith('-2"')


def test_a_completion_that_takes_long_keeps_the_connection_busy(
    s3: Any, host: StoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_operations, "_PATIENCE_S", 0.02)
    complete = ObjectStore.complete

    async def slow(self: ObjectStore, *values: Any) -> Any:
        await asyncio.sleep(0.2)  # sleeps: slow work
        return await complete(self, *values)

    monkeypatch.setattr(ObjectStore, "complete", slow)
    upload = begin(s3)
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}
    done = s3.complete_multipart_upload(**upload, **parts)
    assert done["ETag"].endswith('-1"')
    assert done["ResponseMetadata"]["HTTPHeaders"]["transfer-encoding"] == "chunked"
    assert s3.get_object(**TARGET)["Body"].read() == b"x"


def test_a_completion_that_fails_after_its_status_is_told_in_the_body(
    s3: Any, host: StoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_operations, "_PATIENCE_S", 0.02)
    complete = ObjectStore.complete
    upload = begin(s3)
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    s3.put_object(**TARGET, Body=b"before")

    async def aborted(self: ObjectStore, asked: Any, *values: Any) -> Any:
        await asyncio.sleep(0.05)  # sleeps: slow work
        await self.abort(asked.bucket, asked.key, asked.id)
        return await complete(self, asked, *values)

    monkeypatch.setattr(ObjectStore, "complete", aborted)
    with pytest.raises(ClientError) as raised:
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert raised.value.response["Error"]["Code"] == "NoSuchUpload"
    assert s3.get_object(**TARGET)["Body"].read() == b"before"
    assert len(files(host)) == 1
