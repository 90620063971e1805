"""Signatures: who may do what, and that bodies are the ones that were signed."""

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.access.keys import Key
from tests.hosting.store.raw import ask, connect, sha256, signed
from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost, store_host
from tests.hosting.store.test_bodies import code
from tests.hosting.store.test_objects import ODD_KEYS, code_of, files

READER = "AKIDREADER"
OTHER = "AKIDOTHER"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StoreHost]:
    """A host that verifies signatures."""
    keys = {
        ACCESS_KEY: Key(ACCESS_KEY, SECRET),
        READER: Key(READER, "other", actions=("s3:Get*", "s3:ListBucket", "sagemaker:*")),
        OTHER: Key(OTHER, "others", "123456789012"),
    }
    with store_host(tmp_path / "store", keys) as running:
        yield running


@pytest.mark.parametrize("key", ODD_KEYS)
def test_signed_requests_for_keys_of_any_characters(s3: Any, key: str) -> None:
    s3.put_object(Bucket="models", Key=key, Body=b"x")
    assert s3.get_object(Bucket="models", Key=key)["Body"].read() == b"x"
    assert s3.list_objects_v2(Bucket="models", Prefix=key, Delimiter=key[-1])["KeyCount"] == 1
    s3.copy_object(Bucket="models", Key="copy", CopySource={"Bucket": "models", "Key": key})
    s3.delete_object(Bucket="models", Key=key)


def test_signed_uploads_in_parts(s3: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(9 << 20))
    s3.upload_file(str(source), "models", "big")
    assert s3.head_object(Bucket="models", Key="big")["ContentLength"] == 9 << 20


def test_a_key_may_do_only_what_its_file_says(host: StoreHost, s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"x")
    reader = host.client(aws_access_key_id=READER, aws_secret_access_key="other")
    assert reader.get_object(Bucket="models", Key="a")["Body"].read() == b"x"
    assert reader.list_objects_v2(Bucket="models")["KeyCount"] == 1
    reader.head_bucket(Bucket="models")
    reader.get_bucket_location(Bucket="models")
    for call in (
        lambda: reader.put_object(Bucket="models", Key="b", Body=b""),
        lambda: reader.copy_object(Bucket="models", Key="b", CopySource="models/a"),
        lambda: reader.create_multipart_upload(Bucket="models", Key="b"),
        lambda: reader.delete_object(Bucket="models", Key="a"),
        lambda: reader.delete_objects(Bucket="models", Delete={"Objects": [{"Key": "a"}]}),
        lambda: reader.create_bucket(Bucket="others"),
        lambda: reader.delete_bucket(Bucket="models"),
        reader.list_buckets,
    ):
        with pytest.raises(ClientError, match="not authorized to perform: s3:") as raised:
            call()
        assert code_of(raised) == ("AccessDenied", 403)


def test_a_wrong_secret_or_none(host: StoreHost, s3: Any) -> None:
    wrong = host.client(aws_secret_access_key="<wrong>")
    with pytest.raises(ClientError, match="does not match the signature") as raised:
        wrong.list_objects_v2(Bucket="models")
    assert code_of(raised)[1] == 403
    response, body = ask(host, "GET", "/models")
    assert (response.status, code(body)) == (403, "AccessDenied")


def test_a_body_that_was_not_signed_is_not_kept(host: StoreHost, s3: Any) -> None:
    headers = signed(host, "PUT", "/models/a", sha256(b"mine"), {})
    response, body = ask(host, "PUT", "/models/a", b"mine", headers)
    assert (response.status, body) == (200, b"")
    response, body = ask(host, "PUT", "/models/a", b"evil", headers)
    assert (response.status, code(body)) == (400, "XAmzContentSHA256Mismatch")
    document = b"<Delete><Object><Key>a</Key></Object></Delete>"
    headers = signed(host, "POST", "/models?delete", sha256(document.replace(b"a<", b"b<")), {})
    response, body = ask(host, "POST", "/models?delete", document, headers)
    assert (response.status, code(body)) == (400, "XAmzContentSHA256Mismatch")
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"mine"
    assert len(files(host)) == 1


def chunk(headers: dict[str, str], previous: str, algorithm: str, digests: str) -> str:
    """The signature of a chunk or of trailers."""
    stamp = headers["X-Amz-Date"]
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    secret = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    text = f"{algorithm}\n{stamp}\n{scope}\n{previous}\n{digests}"
    return hmac.new(secret, text.encode(), "sha256").hexdigest()


def test_signed_chunks_and_trailers(host: StoreHost, s3: Any) -> None:
    data, trailer = b"x" * 10, "x-amz-checksum-sha256:" + encoded_hash(b"x" * 10)
    further = {"x-amz-decoded-content-length": "10", "x-amz-trailer": "x-amz-checksum-sha256"}
    kind = STREAMING + "-TRAILER"
    headers = signed(host, "PUT", "/models/a", kind, further)
    seed = headers["Authorization"].rpartition("=")[2]
    empty = sha256(b"")
    first = chunk(headers, seed, "AWS4-HMAC-SHA256-PAYLOAD", f"{empty}\n{sha256(data)}")
    last = chunk(headers, first, "AWS4-HMAC-SHA256-PAYLOAD", f"{empty}\n{empty}")
    end = chunk(headers, last, "AWS4-HMAC-SHA256-TRAILER", sha256(f"{trailer}\n".encode()))
    body = (
        f"a;chunk-signature={first}\r\n{data.decode()}\r\n0;chunk-signature={last}\r\n{trailer}\r\n"
        f"x-amz-trailer-signature:{end}\r\n\r\n"
    )
    response, answer = ask(host, "PUT", "/models/a", body.encode(), headers)
    assert (response.status, answer) == (200, b"")
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == data
    for wrong in (body.replace("xxx", "xxy", 1), body.replace(end, last), body.replace(first, "")):
        response, answer = ask(host, "PUT", "/models/a", wrong.encode(), headers)
        assert (response.status, code(answer)) == (403, "SignatureDoesNotMatch")
    without = body.partition("x-amz-trailer-signature")[0] + "\r\n"
    response, answer = ask(host, "PUT", "/models/a", without.encode(), headers)
    assert (response.status, code(answer)) == (403, "SignatureDoesNotMatch")
    assert len(files(host)) == 1


def test_a_bucket_that_becomes_another_account_s_while_a_body_comes_takes_nothing_of_it(
    host: StoreHost, s3: Any
) -> None:
    other = host.client(aws_access_key_id=OTHER, aws_secret_access_key="others")
    document = b"<Delete><Object><Key>a</Key></Object></Delete>"
    for method, target, body in (("PUT", "/models/a", b"of the first"), ("POST", "/models?delete", document)):
        headers = {
            "Content-Length": str(len(body)),
            "Expect": "100-continue",
            **signed(host, method, target, sha256(body), {}),
        }
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{host.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        with connect(host, "\n".join([*lines, "", ""])) as connection:
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
            s3.delete_bucket(Bucket="models")
            other.create_bucket(Bucket="models")
            other.put_object(Bucket="models", Key="a", Body=b"of the other")
            connection.sendall(body)
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"<Code>AccessDenied</Code>" in answer
        assert other.get_object(Bucket="models", Key="a")["Body"].read() == b"of the other"
        other.delete_object(Bucket="models", Key="a")
        other.delete_bucket(Bucket="models")
        s3.create_bucket(Bucket="models")


def encoded_hash(data: bytes) -> str:
    """A SHA-256 as headers have it."""
    from base64 import b64encode

    return b64encode(hashlib.sha256(data).digest()).decode()
