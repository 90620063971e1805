"""Presigned URLs of S3 where signatures are verified: made by boto3, used by a plain HTTP client."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import boto3
import pytest
from botocore.config import Config

from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from halimede.http1.head import Head
from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost, store_host
from tests.hosting.store.test_objects import ODD_KEYS
from tests.support.waiting import wait_until

READER = "AKIDREADER"
KEYS = {
    ACCESS_KEY: Key(ACCESS_KEY, SECRET, "111122223333"),
    READER: Key(READER, "other", "111122223333", actions=("s3:Get*",)),
}
VERSIONS: tuple[dict[str, Any], ...] = ({"signature_version": "s3v4"}, {})
"""Version 4, and version 2, which boto3 takes for endpoints of one's own unless it is told otherwise."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreHost]:
    """A host that verifies signatures, with a bucket ``models`` and an object ``a`` in it."""
    with store_host(tmp_path_factory.mktemp("store"), KEYS) as running:
        client = running.client()
        client.create_bucket(Bucket="models")
        client.put_object(Bucket="models", Key="a", Body=b"of a")
        client.close()
        yield running


@pytest.fixture(params=VERSIONS)
def s3(host: StoreHost, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Clients that presign with either version."""
    client = host.client(config=request.param)
    yield client
    client.close()


@pytest.fixture
def v4(host: StoreHost) -> Iterator[Any]:
    client = host.client(config={"signature_version": "s3v4"})
    yield client
    client.close()


def use(method: str, url: str, body: bytes = b"", **headers: str) -> tuple[HTTPResponse, bytes]:
    """The response to a request for a URL as it is, and its body."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, url.partition(parts.netloc)[2], body or None, named)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def refusal(answer: tuple[HTTPResponse, bytes]) -> tuple[int, str, str]:
    """Status, code and text of an error."""
    response, body = answer
    root = ET.fromstring(body)
    return response.status, root.findtext("Code") or "", root.findtext("Message") or ""


@pytest.mark.parametrize("key", ODD_KEYS)
def test_objects_are_put_read_looked_at_and_deleted_by_url(s3: Any, key: str) -> None:
    def url(operation: str) -> str:
        made: str = s3.generate_presigned_url(operation, Params={"Bucket": "models", "Key": key})
        return made

    response, body = use("PUT", url("put_object"), b"hello")
    assert (response.status, body) == (200, b"")
    response, body = use("GET", url("get_object"))
    assert (response.status, body) == (200, b"hello")
    response, body = use("GET", url("get_object"), Range="bytes=1-2")
    assert (response.status, body) == (206, b"el")
    response, body = use("HEAD", url("head_object"))
    assert (response.status, response.headers["Content-Length"], body) == (200, "5", b"")
    response, body = use("DELETE", url("delete_object"))
    assert (response.status, body) == (204, b"")
    assert refusal(use("GET", url("get_object")))[:2] == (404, "NoSuchKey")


def test_plain_boto3_makes_urls_that_work(host: StoreHost) -> None:
    client = host.client()
    url = client.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    client.close()
    assert use("GET", url)[1] == b"of a"


def test_a_content_type_that_is_signed_has_to_be_sent(s3: Any) -> None:
    place = {"Bucket": "models", "Key": "typed", "ContentType": "application/x-tar"}
    url = s3.generate_presigned_url("put_object", Params=place)
    assert use("PUT", url, b"x", Content_Type="application/x-tar")[0].status == 200
    assert s3.head_object(Bucket="models", Key="typed")["ContentType"] == "application/x-tar"
    wrong = use("PUT", url, b"x", Content_Type="text/html")
    assert refusal(wrong)[:2] == (403, "SignatureDoesNotMatch")


def test_metadata_that_is_signed_has_to_be_sent(v4: Any) -> None:
    place = {"Bucket": "models", "Key": "meta", "Metadata": {"team": "vision"}}
    url = v4.generate_presigned_url("put_object", Params=place)
    assert use("PUT", url, b"x", x_amz_meta_team="vision")[0].status == 200
    assert v4.head_object(Bucket="models", Key="meta")["Metadata"] == {"team": "vision"}
    assert refusal(use("PUT", url, b"x", x_amz_meta_team="others"))[:2] == (403, "SignatureDoesNotMatch")
    assert refusal(use("PUT", url, b"x"))[:2] == (403, "SignatureDoesNotMatch")


def test_headers_of_amazon_that_are_not_signed_are_refused(s3: Any) -> None:
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "models", "Key": "stolen"})
    status, code, text = refusal(use("PUT", url, x_amz_copy_source="/models/a"))
    assert (status, code) in ((403, "AccessDenied"), (403, "SignatureDoesNotMatch"))
    assert "not signed: x-amz-copy-source" in text or code == "SignatureDoesNotMatch"
    with pytest.raises(s3.exceptions.ClientError):
        s3.head_object(Bucket="models", Key="stolen")


def test_headers_of_an_answer_are_part_of_the_url(s3: Any) -> None:
    place = {"Bucket": "models", "Key": "a", "ResponseContentType": "text/plain", "ResponseExpires": "0"}
    url = s3.generate_presigned_url("get_object", Params=place)
    response, body = use("GET", url)
    assert (response.status, response.headers["Content-Type"], body) == (200, "text/plain", b"of a")
    assert refusal(use("GET", url.replace("plain", "html")))[:2] == (403, "SignatureDoesNotMatch")


def test_lists_and_uploads_in_parts_by_url(s3: Any) -> None:
    url = s3.generate_presigned_url("list_objects_v2", Params={"Bucket": "models", "Prefix": "a"})
    response, body = use("GET", url)
    assert response.status == 200
    assert b"<Key>a</Key>" in body
    upload = s3.create_multipart_upload(Bucket="models", Key="big")["UploadId"]
    place = {"Bucket": "models", "Key": "big", "UploadId": upload}
    url = s3.generate_presigned_url("upload_part", Params={**place, "PartNumber": 1})
    response, _ = use("PUT", url, b"part")
    assert response.status == 200
    parts = {"Parts": [{"PartNumber": 1, "ETag": response.headers["ETag"]}]}
    s3.complete_multipart_upload(**place, MultipartUpload=parts)
    with s3.get_object(Bucket="models", Key="big")["Body"] as body:
        assert body.read() == b"part"


def test_a_url_is_good_for_what_it_was_made_for_and_nothing_else(s3: Any) -> None:
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    wrong = [
        ("PUT", url), ("HEAD", url), ("DELETE", url), ("GET", url.replace("/a?", "/b?")),
        ("GET", url.replace("Expires=", "Expires=1")), ("GET", url.replace("Signature=", "Signature=0")),
        ("GET", url + "&tagging"),
    ]  # fmt: skip
    for method, each in wrong:
        response, body = use(method, each, b"evil" if method == "PUT" else b"")
        assert response.status == 403, each
        if method != "HEAD":
            assert b"<Code>SignatureDoesNotMatch</Code>" in body, body
    assert use("GET", url)[1] == b"of a"


def test_a_url_may_do_what_the_key_may_that_made_it(host: StoreHost) -> None:
    for version in VERSIONS:
        client = host.client(
            aws_access_key_id=READER,
            aws_secret_access_key="other",
            config=version,
        )
        place = {"Bucket": "models", "Key": "a"}
        assert use("GET", client.generate_presigned_url("get_object", Params=place))[1] == b"of a"
        status, code, text = refusal(
            use("PUT", client.generate_presigned_url("put_object", Params=place), b"x")
        )
        assert (status, code) == (403, "AccessDenied")
        assert "not authorized to perform: s3:PutObject" in text
        client.close()


def test_wrong_secrets_and_strangers(host: StoreHost) -> None:
    for version in VERSIONS:
        for settings, expected in (
            ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
            ({"aws_access_key_id": "AKIDNOBODY"}, "InvalidAccessKeyId"),
        ):
            client = host.client(config=version, **settings)
            url = client.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
            client.close()
            assert refusal(use("GET", url))[:2] == (403, expected)


def test_a_url_expires(s3: Any) -> None:
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"}, ExpiresIn=1)
    assert use("GET", url)[0].status == 200
    wait_until(lambda: use("GET", url)[0].status != 200)
    status, code, text = refusal(use("GET", url))
    assert (status, code) == (403, "AccessDenied")
    assert text.startswith("Request has expired: it was good until 20")


def head_of(url: str, method: str = "GET", **headers: str) -> tuple[Head, str]:
    """The head of a request for a URL, and its target."""
    parts = urlsplit(url)
    target = url.partition(parts.netloc)[2]
    return Head(method, target, {"host": parts.netloc, **headers}, (("Host", parts.netloc),), "1.1"), target


@pytest.mark.parametrize("lifetime_s", [1, 3600, 7 * 24 * 3600])
def test_a_url_is_good_to_its_last_second(s3: Any, lifetime_s: int) -> None:
    url = s3.generate_presigned_url(
        "get_object", Params={"Bucket": "models", "Key": "a"}, ExpiresIn=lifetime_s
    )
    parameters = parse_qs(urlsplit(url).query)
    if "Expires" in parameters:
        end = datetime.fromtimestamp(int(parameters["Expires"][0]), UTC)
    else:
        begin = datetime.strptime(parameters["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        end = begin + timedelta(seconds=lifetime_s)
    head, target = head_of(url)
    caller, key = Gate(KEYS, Caller(), lambda: end).admit(head, target, None, ("s3",))
    assert (caller.access_key, caller.account) == (ACCESS_KEY, "111122223333")
    assert key == KEYS[ACCESS_KEY]
    late = end + timedelta(seconds=1)
    with pytest.raises(ApiError, match="AccessDenied: Request has expired") as raised:
        Gate(KEYS, Caller(), lambda: late).admit(head, target, None, ("s3",))
    assert raised.value.status == 403


def test_a_url_of_the_future_is_not_good_yet(v4: Any) -> None:
    head, target = head_of(v4.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"}))
    for early, good in ((timedelta(minutes=14), True), (timedelta(minutes=17), False)):
        gate = Gate(KEYS, Caller(), lambda: datetime.now(UTC) - early)  # noqa: B023
        if good:
            gate.admit(head, target, None, ("s3",))
        else:
            with pytest.raises(ApiError, match="AccessDenied: Request is not yet valid"):
                gate.admit(head, target, None, ("s3",))


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("X-Amz-Expires=3600", "X-Amz-Expires=604801", "from 1 to 604800"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=0", "from 1 to 604800"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=-1", "from 1 to 604800 (a week), got '-1'"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=1e3", "from 1 to 604800"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=%D9%A3", "from 1 to 604800"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=" + "9" * 5000, "from 1 to 604800"),
        ("X-Amz-Expires=3600&", "", "X-Amz-Expires is missing"),
        ("X-Amz-Date=20", "X-Amz-Date=x", "X-Amz-Date must be in the format"),
        ("X-Amz-Date=20", "X-Amz-Date=19", "X-Amz-Credential is of another day"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=", "X-Amz-SignedHeaders is missing"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1", "only supports AWS4-HMAC-SHA256, got 'AWS4-HMAC-SHA1'"),
        ("%2Fs3%2F", "%2Fsagemaker%2F", "only requests for S3 can be presigned"),
        ("%2Faws4_request", "", "must be KEY/DATE/REGION/s3/aws4_request"),
    ],
)
def test_parameters_that_make_no_sense_are_told(v4: Any, before: str, after: str, text: str) -> None:
    url = v4.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    assert before in url
    status, code, message = refusal(use("GET", url.replace(before, after)))
    assert (status, code) == (400, "AuthorizationQueryParametersError")
    assert text in message


@pytest.mark.parametrize("expires", ["", "x", "-1", "9" * 30, "%D9%A3", "1.5"])
def test_times_of_version_2_that_make_no_sense_are_told(host: StoreHost, expires: str) -> None:
    url = f"{host.endpoint}/models/a?AWSAccessKeyId={ACCESS_KEY}&Signature=x&Expires={expires}"
    status, code, message = refusal(use("GET", url))
    assert (status, code) == (403, "AccessDenied")
    assert "Invalid date" in message or "Expires is missing" in message


@pytest.mark.parametrize("signature", ["x", "%00", "%FF", "%C3%A9", "=" * 50])
def test_signatures_that_make_no_sense_do_not_match(host: StoreHost, signature: str) -> None:
    end = int(time.time()) + 60
    url = f"{host.endpoint}/models/a?AWSAccessKeyId={ACCESS_KEY}&Signature={signature}&Expires={end}"
    assert refusal(use("GET", url))[:2] == (403, "SignatureDoesNotMatch")


def test_a_host_that_is_not_signed_is_no_presigned_url(v4: Any) -> None:
    url = v4.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    status, code, text = refusal(use("GET", url.replace("SignedHeaders=host", "SignedHeaders=date")))
    assert (status, code) == (403, "AccessDenied")
    assert "not signed: host" in text


def test_a_request_is_signed_in_one_way_only(s3: Any) -> None:
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
    status, code, text = refusal(use("GET", url, Authorization="AWS4-HMAC-SHA256 Credential=x"))
    assert (status, code) == (400, "InvalidArgument")
    assert text.startswith("Only one auth mechanism allowed")


def test_a_hash_that_is_signed_is_held_against_the_body(v4: Any) -> None:
    url = v4.generate_presigned_url("put_object", Params={"Bucket": "models", "Key": "hashed"})
    answer = use("PUT", url, b"x", x_amz_content_sha256="0" * 64)
    assert refusal(answer)[:2] == (403, "AccessDenied")
    streaming = use("PUT", url, b"x", x_amz_content_sha256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    status, code, text = refusal(streaming)
    assert (status, code) == (501, "NotImplemented")
    assert "send the body as it is" in text


def test_uploads_by_forms_are_refused_by_name(s3: Any) -> None:
    post = s3.generate_presigned_post("models", "a")
    form = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {**post["fields"], "file": "x"}.items()
    )
    answer = use(
        "POST", post["url"], f"{form}--b--\r\n".encode(), Content_Type="multipart/form-data; boundary=b"
    )
    status, code, text = refusal(answer)
    assert (status, code) == (501, "NotImplemented")
    assert "presigned POST" in text


def test_buckets_in_the_name_of_the_host(host: StoreHost) -> None:
    for version in VERSIONS:
        client = boto3.client(
            "s3",
            "us-east-1",
            endpoint_url=f"http://localhost:{host.port}",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "virtual"}, **version),
        )
        url = client.generate_presigned_url("get_object", Params={"Bucket": "models", "Key": "a"})
        client.close()
        assert url.startswith(f"http://models.localhost:{host.port}/a?")
        connection = HTTPConnection("127.0.0.1", host.port, timeout=60)
        try:
            target = url.partition(f":{host.port}")[2]
            connection.request("GET", target, headers={"Host": f"models.localhost:{host.port}"})
            assert connection.getresponse().read() == b"of a"
        finally:
            connection.close()


def test_presigned_urls_work_where_anybody_may_come_in(tmp_path: Path) -> None:
    with store_host(tmp_path) as open_host:
        for version in VERSIONS:
            client = open_host.client(config=version)
            if version == VERSIONS[0]:
                client.create_bucket(Bucket="models")
            place = {"Bucket": "models", "Key": "a", "ContentType": "text/plain"}
            url = client.generate_presigned_url("put_object", Params=place)
            assert use("PUT", url, b"x", Content_Type="text/plain")[0].status == 200
            client.close()
