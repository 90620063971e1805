"""Objects through boto3: put, got, listed, copied and deleted."""

import hashlib
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.hosting.store.raw import ask
from tests.hosting.store.serving import StoreHost

ODD_KEYS = [
    "plain",
    "with space",
    "plus+plus",
    "percent%41",
    "percent%2Fslash",
    "ünï/cödé/模型.tar.gz",
    "quote'\"<&>",
    "question?mark=1&x",
    "hash#tag",
    "//double//slash/",
    "trailing/",
    "../up/./dot",
    "tab\tand\nline end",
    "emoji-\N{ROCKET}",
    "~tilde*star(paren)!",
    "semi;colon,comma@at:colon$dollar=",
    "back\\slash|pipe^caret`",
]


def code_of(raised: "pytest.ExceptionInfo[ClientError]") -> tuple[str, int]:
    """The code and status of an error."""
    response = raised.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_of_any_characters_is_kept_as_it_is(s3: Any, key: str) -> None:
    s3.put_object(Bucket="models", Key=key, Body=key.encode())
    assert s3.get_object(Bucket="models", Key=key)["Body"].read() == key.encode()
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="models")["Contents"]] == [key]
    assert [each["Key"] for each in s3.list_objects(Bucket="models", Prefix=key)["Contents"]] == [key]
    s3.copy_object(Bucket="models", Key=key + "2", CopySource={"Bucket": "models", "Key": key})
    done = s3.delete_objects(Bucket="models", Delete={"Objects": [{"Key": key}, {"Key": key + "2"}]})
    assert [each["Key"] for each in done["Deleted"]] == [key, key + "2"]
    assert s3.list_objects_v2(Bucket="models")["KeyCount"] == 0


def test_a_key_that_xml_cannot_say_is_listed_and_deleted(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="control\x01", Body=b"")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="models")["Contents"]] == ["control\x01"]
    s3.delete_object(Bucket="models", Key="control\x01")
    assert s3.list_objects_v2(Bucket="models")["KeyCount"] == 0


def test_an_object_comes_back_with_what_it_was_put_with(s3: Any) -> None:
    data = os.urandom(700_000)
    before = datetime.now(UTC) - timedelta(seconds=2)
    put = s3.put_object(
        Bucket="models",
        Key="a",
        Body=data,
        ContentType="application/gzip",
        CacheControl="no-cache",
        ContentDisposition="attachment",
        ContentEncoding="gzip",
        ContentLanguage="en",
        Metadata={"Owner": "me", "note": "a b"},
    )
    assert put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    got = s3.get_object(Bucket="models", Key="a")
    assert got["Body"].read() == data
    head = s3.head_object(Bucket="models", Key="a", ChecksumMode="ENABLED")
    for answer in (got, head):
        assert answer["ContentType"] == "application/gzip"
        assert answer["CacheControl"] == "no-cache"
        assert answer["ContentDisposition"] == "attachment"
        assert answer["ContentEncoding"] == "gzip"
        assert answer["ContentLanguage"] == "en"
        assert answer["Metadata"] == {"owner": "me", "note": "a b"}
        assert answer["ContentLength"] == len(data)
        assert before < answer["LastModified"] < before + timedelta(seconds=10)
        assert answer["ChecksumCRC32"] == put["ChecksumCRC32"]
        assert answer["ChecksumType"] == "FULL_OBJECT"


def test_an_object_without_a_type_has_s3s(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="empty", Body=b"")
    got = s3.get_object(Bucket="models", Key="empty")
    assert (got["Body"].read(), got["ContentType"]) == (b"", "binary/octet-stream")


def test_a_put_replaces_the_object_and_its_file(s3: Any, host: StoreHost) -> None:
    for data in (b"first", b"second"):
        s3.put_object(Bucket="models", Key="a", Body=data)
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"second"
    assert len(files(host)) == 1
    s3.delete_object(Bucket="models", Key="a")
    assert files(host) == []


def files(host: StoreHost) -> list[str]:
    """The names of the files with objects' bytes."""
    return [path.name for path in (host.store.directory / "objects").glob("??/*")]


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, 1000),
        ("bytes=-10", 990, 1000),
        ("bytes=-5000", 0, 1000),
        ("bytes=990-5000", 990, 1000),
        ("bytes=999-999", 999, 1000),
    ],
)
def test_a_range_of_an_object(s3: Any, asked: str, begin: int, end: int) -> None:
    data = os.urandom(1000)
    s3.put_object(Bucket="models", Key="a", Body=data)
    got = s3.get_object(Bucket="models", Key="a", Range=asked)
    assert got["Body"].read() == data[begin:end]
    assert got["ContentRange"] == f"bytes {begin}-{end - 1}/1000"
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    head = s3.head_object(Bucket="models", Key="a", Range=asked)
    assert (head["ContentLength"], head["ContentRange"]) == (end - begin, f"bytes {begin}-{end - 1}/1000")


@pytest.mark.parametrize("asked", ["bytes=5-1", "bytes=0-1,4-5", "lines=1-2", "bytes=x-y", "bytes=-"])
def test_a_range_that_makes_no_sense_gets_the_whole_object(s3: Any, asked: str) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"0123456789")
    got = s3.get_object(Bucket="models", Key="a", Range=asked)
    assert (got["Body"].read(), got["ResponseMetadata"]["HTTPStatusCode"]) == (b"0123456789", 200)


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused(s3: Any, asked: str) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"0123456789")
    with pytest.raises(ClientError) as raised:
        s3.get_object(Bucket="models", Key="a", Range=asked)
    assert code_of(raised) == ("InvalidRange", 416)
    assert raised.value.response["ResponseMetadata"]["HTTPHeaders"]["content-range"] == "bytes */10"


def test_a_range_of_an_object_that_the_client_knows_in_part(s3: Any, host: StoreHost) -> None:
    etag = s3.put_object(Bucket="models", Key="a", Body=b"0123456789")["ETag"]
    modified = s3.head_object(Bucket="models", Key="a")["ResponseMetadata"]["HTTPHeaders"]["last-modified"]
    for known, status in (
        (etag, 206),
        ('"other"', 200),
        (modified, 206),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 200),
    ):
        response, body = ask(host, "GET", "/models/a", headers={"Range": "bytes=2-3", "If-Range": known})
        assert (response.status, body) == (status, b"23" if status == 206 else b"0123456789")


def test_headers_of_an_answer_that_the_client_chooses(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"x", ContentType="text/plain")
    chosen = {"ResponseContentType": "text/html", "ResponseContentDisposition": "attachment"}
    got = s3.get_object(Bucket="models", Key="a", **chosen)
    assert (got["ContentType"], got["ContentDisposition"]) == ("text/html", "attachment")
    assert got["Body"].read() == b"x"
    with pytest.raises(ClientError) as raised:
        s3.get_object(Bucket="models", Key="a", ResponseContentType="a\r\nSet-Cookie: b")
    assert code_of(raised) == ("InvalidArgument", 400)


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_an_url_that_is_signed_beforehand(host: StoreHost, s3: Any, version: str) -> None:
    signer = host.client(config={"signature_version": version})
    put = signer.generate_presigned_url("put_object", Params={"Bucket": "models", "Key": "a b"})
    get = signer.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a b"})
    assert ask(host, "PUT", put.removeprefix(host.endpoint), b"x")[0].status == 200
    assert ask(host, "GET", get.removeprefix(host.endpoint))[1] == b"x"


def test_an_object_has_no_tags(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"x")
    assert s3.get_object_tagging(Bucket="models", Key="a")["TagSet"] == []


def test_conditions_of_a_read(s3: Any) -> None:
    etag = s3.put_object(Bucket="models", Key="a", Body=b"x")["ETag"]
    modified = s3.head_object(Bucket="models", Key="a")["LastModified"]
    hour = timedelta(hours=1)
    for fitting in (
        {"IfMatch": etag},
        {"IfMatch": "*"},
        {"IfNoneMatch": '"other"'},
        {"IfModifiedSince": modified - hour},
        {"IfUnmodifiedSince": modified},
        {"IfMatch": etag, "IfUnmodifiedSince": modified - hour},
    ):
        assert s3.get_object(Bucket="models", Key="a", **fitting)["Body"].read() == b"x"
    for status, unfitting in (
        (412, {"IfMatch": '"other"'}),
        (412, {"IfUnmodifiedSince": modified - hour}),
        (304, {"IfNoneMatch": etag}),
        (304, {"IfModifiedSince": modified}),
    ):
        for call in (s3.get_object, s3.head_object):
            with pytest.raises(ClientError) as raised:
                call(Bucket="models", Key="a", **unfitting)
            assert code_of(raised)[1] == status


def test_conditions_of_a_write(s3: Any) -> None:
    etag = s3.put_object(Bucket="models", Key="a", Body=b"1", IfNoneMatch="*")["ETag"]
    for unfitting in ({"IfNoneMatch": "*"}, {"IfMatch": '"other"'}):
        with pytest.raises(ClientError) as raised:
            s3.put_object(Bucket="models", Key="a", Body=b"2", **unfitting)
        assert code_of(raised) == ("PreconditionFailed", 412)
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="models", Key="absent", Body=b"2", IfMatch=etag)
    assert code_of(raised) == ("NoSuchKey", 404)
    s3.put_object(Bucket="models", Key="a", Body=b"2", IfMatch=etag)
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"2"


def test_a_copy_has_the_headers_of_its_source_or_new_ones(s3: Any) -> None:
    s3.create_bucket(Bucket="others")
    source = {"Bucket": "models", "Key": "a b+c%20d"}
    s3.put_object(**source, Body=b"x", ContentType="text/plain", Metadata={"who": "me"})
    s3.copy_object(Bucket="others", Key="same", CopySource=source)
    new = {"MetadataDirective": "REPLACE", "ContentType": "text/html", "Metadata": {"other": "1"}}
    s3.copy_object(Bucket="others", Key="new", CopySource=source, **new)
    s3.copy_object(Bucket="models", Key="a b+c%20d", CopySource=source, **new)
    s3.delete_object(**source)
    same, changed = s3.get_object(Bucket="others", Key="same"), s3.get_object(Bucket="others", Key="new")
    assert (same["Body"].read(), same["ContentType"], same["Metadata"]) == (b"x", "text/plain", {"who": "me"})
    assert (changed["Body"].read(), changed["ContentType"]) == (b"x", "text/html")
    assert changed["Metadata"] == {"other": "1"}


def test_a_copy_that_cannot_be_made(s3: Any, host: StoreHost) -> None:
    etag = s3.put_object(Bucket="models", Key="a", Body=b"x")["ETag"]
    source = {"Bucket": "models", "Key": "a"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("NoSuchKey", {"Key": "b", "CopySource": "models/absent"}),
        ("NoSuchBucket", {"Key": "b", "CopySource": "absent/a"}),
        ("NoSuchBucket", {"Bucket": "absent", "Key": "b", "CopySource": source}),
        ("InvalidArgument", {"Key": "b", "CopySource": "models"}),
        ("InvalidRequest", {"Key": "a", "CopySource": source}),
        ("PreconditionFailed", {"Key": "b", "CopySource": source, "CopySourceIfNoneMatch": etag}),
        ("PreconditionFailed", {"Key": "b", "CopySource": source, "CopySourceIfMatch": '"other"'}),
        ("NotImplemented", {"Key": "b", "CopySource": {**source, "VersionId": "1"}}),
    ]
    for code, call in cases:
        with pytest.raises(ClientError) as raised:
            s3.copy_object(**{"Bucket": "models", **call})
        assert code_of(raised)[0] == code
    assert len(files(host)) == 1


def test_deleting_many_and_what_was_never_there(s3: Any) -> None:
    keys = [f"k/{number}" for number in range(1000)]
    for key in keys[::10]:
        s3.put_object(Bucket="models", Key=key, Body=b"")
    quiet = s3.delete_objects(
        Bucket="models", Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
    )
    assert "Deleted" not in quiet
    assert "Errors" not in quiet
    assert s3.list_objects_v2(Bucket="models")["KeyCount"] == 0
    assert s3.delete_object(Bucket="models", Key="absent")["ResponseMetadata"]["HTTPStatusCode"] == 204
    versions = s3.delete_objects(Bucket="models", Delete={"Objects": [{"Key": "a", "VersionId": "7"}]})
    assert versions["Errors"][0]["Code"] == "NotImplemented"


def test_what_is_not_there(s3: Any) -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: s3.get_object(Bucket="models", Key="absent"), "NoSuchKey"),
        (lambda: s3.get_object(Bucket="absent", Key="a"), "NoSuchBucket"),
        (lambda: s3.put_object(Bucket="absent", Key="a", Body=b""), "NoSuchBucket"),
        (lambda: s3.list_objects_v2(Bucket="absent"), "NoSuchBucket"),
        (lambda: s3.delete_object(Bucket="absent", Key="a"), "NoSuchBucket"),
        (lambda: s3.head_object(Bucket="models", Key="absent"), "404"),
        (lambda: s3.head_bucket(Bucket="absent"), "404"),
    ]
    for call, code in cases:
        with pytest.raises(ClientError) as raised:
            call()
        assert code_of(raised) == (code, 404)


def test_what_the_store_does_not_do_is_said(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"x")
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: s3.delete_object_tagging(Bucket="models", Key="a"), "tagging"),
        (lambda: s3.get_object(Bucket="models", Key="a", PartNumber=1), "partNumber"),
        (lambda: s3.delete_object(Bucket="models", Key="a", IfMatch="x"), "If-Match"),
        (lambda: s3.put_object(Bucket="models", Key="b", Body=b"", IfNoneMatch="x"), "If-None-Match"),
        (lambda: s3.get_bucket_policy(Bucket="models"), "policy"),
        (lambda: s3.get_object(Bucket="models", Key="a", VersionId="1"), "versionId"),
        (lambda: s3.put_object(Bucket="models", Key="b", Body=b"", Tagging="a=b"), "x-amz-tagging"),
        (lambda: s3.put_bucket_acl(Bucket="models", ACL="private"), "acl"),
    ]
    for call, word in cases:
        with pytest.raises(ClientError, match=word) as raised:
            call()
        assert code_of(raised) == ("NotImplemented", 501)


def test_a_key_or_metadata_that_is_too_long(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="ü" * 512, Body=b"")
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="models", Key="ü" * 513, Body=b"")
    assert code_of(raised) == ("KeyTooLongError", 400)
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="models", Key="a", Body=b"", Metadata={"m": "x" * 2048})
    assert code_of(raised) == ("MetadataTooLarge", 400)


def test_a_bucket_that_is_virtually_hosted(host: StoreHost, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = host.client(
        endpoint_url=f"http://localhost:{host.port}", config={"s3": {"addressing_style": "virtual"}}
    )
    resolve_below_localhost(monkeypatch)
    assert "models.localhost" in hosted.generate_presigned_url("head_bucket", Params={"Bucket": "models"})
    hosted.put_object(Bucket="models", Key="a/b c", Body=b"x")
    done = hosted.delete_objects(Bucket="models", Delete={"Objects": [{"Key": "a/b c"}]})
    assert done["Deleted"] == [{"Key": "a/b c"}]
    assert hosted.list_objects_v2(Bucket="models")["KeyCount"] == 0


def resolve_below_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have names below localhost resolved to this machine, which not every resolver does."""
    original = socket.getaddrinfo

    def resolve(name: Any, *args: Any, **kwargs: Any) -> Any:
        return original("127.0.0.1" if str(name).endswith(".localhost") else name, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
