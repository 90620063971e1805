"""Bodies: checksums in headers and trailers, chunks, and all that does not fit together."""

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.store import checksums
from halimede.hosting.store.aws_chunks import AwsChunks, ChunkSigner
from halimede.http1.head import Head
from tests.hosting.store.raw import ask, connect, sha256
from tests.hosting.store.serving import StoreHost, store_host
from tests.hosting.store.test_objects import files
from tests.support.certificates import make_certificate
from tests.support.waiting import wait_until

MIB = 1 << 20
DATA = b"some bytes of a model"
_UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def encoded(algorithm: str, data: bytes = DATA) -> str:
    """A checksum as headers have it."""
    total = checksums.hasher(algorithm)
    total.update(data)
    return checksums.encode(total.digest())


def code(body: bytes) -> str:
    """The code of an error."""
    return body.partition(b"<Code>")[2].partition(b"<")[0].decode()


@pytest.mark.parametrize("size", [0, 10, 3 * MIB])
def test_boto3_sends_its_checksum_in_a_trailer_over_tls(tmp_path: Path, size: int) -> None:
    certificate = make_certificate(tmp_path, "host")
    with store_host(tmp_path / "store", certificate=certificate) as host:
        s3 = host.client(verify=str(certificate[0]))
        sent: dict[str, Any] = {}
        s3.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.update(request.headers))
        s3.create_bucket(Bucket="models")
        data = os.urandom(size)
        put = s3.put_object(Bucket="models", Key="a", Body=data, ContentEncoding="gzip")
        headers = {name.lower(): value for name, value in sent.items()}
        assert headers["x-amz-trailer"] == b"x-amz-checksum-crc32"
        assert headers["x-amz-content-sha256"] in (_UNSIGNED, _UNSIGNED.encode())  # botocore has two signers
        assert put["ChecksumCRC32"] == encoded("CRC32", data)
        got = s3.get_object(Bucket="models", Key="a")
        assert (got["Body"].read(), got["ContentEncoding"]) == (data, "gzip")
        big = tmp_path / "big"
        big.write_bytes(os.urandom(9 * MIB))
        s3.upload_file(str(big), "models", "big")
        assert s3.get_object(Bucket="models", Key="big")["Body"].read() == big.read_bytes()


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_any_checksum_in_a_header_or_a_trailer(host: StoreHost, s3: Any, algorithm: str) -> None:
    name = f"x-amz-checksum-{algorithm.lower()}"
    right, wrong = encoded(algorithm), encoded(algorithm, b"other")
    for value, status in ((right, 200), (wrong, 400)):
        response, body = ask(host, "PUT", "/models/header", DATA, {name: value})
        assert (response.status, code(body)) == (status, "" if status == 200 else "BadDigest")
        chunked = b"%x\r\n%b\r\n0\r\n%b:%b\r\n\r\n" % (len(DATA), DATA, name.encode(), value.encode())
        response, body = ask(host, "PUT", "/models/trailer", chunked, trailer_headers(name))
        assert (response.status, code(body)) == (status, "" if status == 200 else "BadDigest")
    for key in ("header", "trailer"):
        response, body = ask(host, "GET", f"/models/{key}", headers={"x-amz-checksum-mode": "ENABLED"})
        assert (response.getheader(name), body) == (right, DATA)
    assert len(files(host)) == 2


def trailer_headers(name: str) -> dict[str, str]:
    """The headers of a body in chunks with a checksum after them."""
    return {
        "Content-Encoding": "aws-chunked",
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(len(DATA)),
        "x-amz-trailer": name,
    }


def test_a_body_that_is_not_what_its_headers_say(host: StoreHost, s3: Any) -> None:
    md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    crc32 = encoded("CRC32")
    cases: list[tuple[str, dict[str, str]]] = [
        ("BadDigest", {"Content-MD5": md5}),
        ("InvalidDigest", {"Content-MD5": "none"}),
        ("XAmzContentSHA256Mismatch", {"x-amz-content-sha256": sha256(b"other")}),
        ("InvalidArgument", {"x-amz-content-sha256": "none"}),
        ("NotImplemented", {"x-amz-content-sha256": "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"}),
        ("InvalidRequest", {"x-amz-checksum-crc32": "none"}),
        ("InvalidRequest", {"x-amz-checksum-crc32": encoded("SHA1")}),
        ("InvalidRequest", {"x-amz-checksum-crc32": crc32, "x-amz-checksum-sha1": encoded("SHA1")}),
        ("InvalidRequest", {"x-amz-trailer": "x-amz-checksum-adler"}),
        ("InvalidRequest", {"x-amz-trailer": "x-other"}),
        ("MalformedTrailerError", {"x-amz-trailer": "x-amz-checksum-crc32"}),
        ("MissingContentLength", {"Content-Encoding": "aws-chunked"}),
        ("InvalidArgument", {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": "-1"}),
    ]
    for expected, headers in cases:
        response, body = ask(host, "PUT", "/models/a", DATA, headers)
        assert code(body) == expected
        assert response.status >= 400
    assert files(host) == []


@pytest.mark.parametrize(
    ("coded", "expected"),
    [
        (b"0\r\n\r\n", "IncompleteBody"),
        (b"15\r\n" + DATA + b"\r\n0\r\n", "IncompleteBody"),
        (b"15\r\n" + DATA, "IncompleteBody"),
        (b"16\r\n" + DATA + b"!\r\n0\r\n\r\n", "IncompleteBody"),
        (b"15\r\n" + DATA + b"!\r\n0\r\n\r\n", "InvalidRequest"),
        (b"15\r\n" + DATA + b"\r\n0\r\n\r\nmore", "InvalidRequest"),
        (b"xyz\r\n" + DATA, "InvalidRequest"),
        (b"-5\r\n" + DATA, "InvalidRequest"),
        (b"15\n" + DATA, "InvalidRequest"),
        (b"1" * 2000, "InvalidRequest"),
        (b"ffffffffffffffff\r\n" + DATA * 5, "IncompleteBody"),
        (b"15\r\n" + DATA + b"\r\n0\r\nno colon\r\n\r\n", "MalformedTrailerError"),
        (b"15\r\n" + DATA + b"\r\n0\r\n" + b"a:b\r\n" * 100 + b"\r\n", "MalformedTrailerError"),
        (b"15\r\n" + DATA + b"\r\n0\r\na:b\r\n\r\n", "MalformedTrailerError"),
    ],
)
def test_chunks_that_are_malformed(host: StoreHost, s3: Any, coded: bytes, expected: str) -> None:
    _, body = ask(host, "PUT", "/models/a", coded, trailer_headers("x-amz-checksum-crc32"))
    assert code(body) == expected
    assert files(host) == []


def test_a_body_in_the_chunks_of_http(host: StoreHost, s3: Any) -> None:
    head = "PUT /models/a HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n"
    with connect(host, head, b"5\r\n%b\r\n10\r\n%b\r\n0\r\n\r\n" % (DATA[:5], DATA[5:])) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert ask(host, "GET", "/models/a")[1] == DATA
    with connect(host, head, b"5\r\nabc") as connection:
        connection.sendall(b"defghi\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    assert ask(host, "GET", "/models/a")[1] == DATA
    wait_until(lambda: len(files(host)) == 1)


def test_a_client_is_told_to_go_on_only_when_its_body_is_wanted(host: StoreHost, s3: Any) -> None:
    head = "PUT /{}/a HTTP/1.1\nHost: x\nContent-Length: 21\nExpect: 100-continue\n\n"
    with connect(host, head.format("models")) as connection:
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DATA)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    with connect(host, head.format("absent")) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"no xml",
        b"<Delete>",
        b"<Other/>",
        b"<Delete/>",
        b"<Delete><Object/></Delete>",
        b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>",
        b"<!DOCTYPE a [<!ENTITY e 'x'>]><Delete><Object><Key>&e;</Key></Object></Delete>",
        b"<a>" * 1000,
        b"<Delete>" + b"<x/>" * 200_000 + b"</Delete>",
        *(
            f'<?xml version="1.0" encoding="{name}"?><Delete><Object><Key>a</Key></Object></Delete>'.encode()
            for name in (
                "utf-7",
                "UTF-16",
                "cp037",
                "big5",
                "rot13",
                "idna",
                "hex",
                "undefined",
                "iso-8859-1",
                "x" * 900,
            )
        ),
        '<?xml version="1.0" encoding="utf-16"?><Delete><Object><Key>a</Key></Object></Delete>'.encode(
            "utf-16"
        ),
        "<Delete><Object><Key>a</Key></Object></Delete>".encode("utf-32"),
        b"<Delete><Object><Key>\xff</Key></Object></Delete>",
        b"<Delete><Object><Key>\x00</Key></Object></Delete>",
        b"<Delete " + b" ".join(b'a%d="x"' % number for number in range(300_000)) + b"/>",
        b"<Delete " + b" ".join(b'xmlns:a%d="x"' % number for number in range(100_000)) + b"/>",
        b"<Delete>" + b"\n" * (2 << 20) + b"</Delete>",
        b"<Delete>" + b"&#38;" * (400 << 10) + b"</Delete>",
        b"<" + b"a" * (2 << 20) + b"/>",
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><Delete><Object><Key>a</Key></Object></Delete>",
        b"<!DOCTYPE a [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><Delete>&b;</Delete>",
    ],
)
def test_a_document_that_makes_no_sense(host: StoreHost, s3: Any, document: bytes) -> None:
    response, body = ask(host, "POST", "/models?delete", document)
    assert (response.status, code(body)) == (400, "MalformedXML")
    assert len(body) < 1000


@pytest.mark.parametrize(
    "declaration", ["", '<?xml version="1.0"?>', '<?xml version="1.0" encoding="utf-8"?>', "\ufeff"]
)
def test_documents_are_in_utf_8(host: StoreHost, s3: Any, declaration: str) -> None:
    key = "x" + "é" * 500
    s3.put_object(Bucket="models", Key=key, Body=b"x")
    document = f"{declaration}<Delete><Object><Key>{'&#120;' + 'é' * 500}</Key></Object></Delete>"
    response, _ = ask(host, "POST", "/models?delete", document.encode())
    assert response.status == 200
    assert "Contents" not in s3.list_objects_v2(Bucket="models", Prefix=key)


def test_a_document_that_is_too_large(host: StoreHost, s3: Any) -> None:
    response, body = ask(host, "POST", "/models?delete", b" " * (5 * MIB))
    assert (response.status, code(body)) == (400, "EntityTooLarge")


@pytest.mark.parametrize(
    ("method", "target", "status", "expected"),
    [
        ("GET", "/models/%ff", 400, "InvalidURI"),
        ("GET", "/models?prefix=%ff", 400, "InvalidURI"),
        ("GET", "/models?" + "&".join(f"a{number}=1" for number in range(200)), 400, "InvalidURI"),
        ("PATCH", "/models/a", 405, "MethodNotAllowed"),
        ("POST", "/models/a", 501, "NotImplemented"),
        ("DELETE", "/", 405, "MethodNotAllowed"),
        ("GET", "/models?max-keys=9999999999999999999999", 400, "InvalidArgument"),
        ("GET", "/models?list-type=3", 400, "InvalidArgument"),
        ("GET", "/models?versions", 501, "NotImplemented"),
    ],
)
def test_requests_that_make_no_sense(
    host: StoreHost, s3: Any, method: str, target: str, status: int, expected: str
) -> None:
    response, body = ask(host, method, target)
    assert (response.status, code(body)) == (status, expected)


EXAMPLE = Key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
CHUNKS = [
    (65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
]


def example(last_signature: str = CHUNKS[2][1], letter: bytes = b"a") -> bytes:
    """The body of the example in the specification (Signature Version 4, "Transferring payload in chunks")."""
    signatures = [CHUNKS[0][1], CHUNKS[1][1], last_signature]
    return b"".join(
        b"%x;chunk-signature=%b\r\n%b\r\n" % (size, signature.encode(), letter * size)
        for (size, _), signature in zip(CHUNKS, signatures, strict=True)
    )


def example_chunks(take: Callable[[memoryview], None]) -> AwsChunks:
    """The reader of that example."""
    credential = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
    headers = {
        "authorization": f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders=host,Signature={SEED}",
        "x-amz-date": "20130524T000000Z",
    }
    return AwsChunks(take, ChunkSigner(Head("PUT", "/", headers, tuple(headers.items()), "1.1"), EXAMPLE))


@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
def test_the_specifications_signed_chunks_in_pieces_of_any_size(step: int) -> None:
    got = bytearray()
    chunks = example_chunks(got.extend)
    body = example()
    for begin in range(0, len(body), step):
        chunks.feed(body[begin : begin + step])
    chunks.finish()
    assert got == b"a" * 66_560


def test_only_the_last_chunk_may_be_short() -> None:
    chunks = AwsChunks(lambda _: None)
    chunks.feed(b"2000\r\n" + bytes(8192) + b"\r\n1\r\nx\r\n")
    with pytest.raises(ApiError, match="InvalidChunkSizeError"):
        chunks.feed(b"1\r\nx\r\n")


@pytest.mark.parametrize(
    "body", [example(letter=b"b"), example(last_signature=CHUNKS[1][1]), example(last_signature="é")]
)
def test_chunks_that_somebody_else_has_signed(body: bytes) -> None:
    chunks = example_chunks(lambda _: None)
    with pytest.raises(ApiError, match="SignatureDoesNotMatch"):
        chunks.feed(body)


@pytest.mark.parametrize(
    ("algorithm", "check"),
    [("CRC32", "cbf43926"), ("CRC32C", "e3069283"), ("CRC64NVME", "ae8b14860a799888")],
)
def test_checksums_are_the_published_ones_in_one_piece_or_many(algorithm: str, check: str) -> None:
    total = checksums.hasher(algorithm)
    for piece in (b"", b"1234", memoryview(bytearray(b"56789"))):
        total.update(piece)
    assert total.digest().hex() == check
    assert encoded(algorithm, b"123456789") == checksums.encode(bytes.fromhex(check))
