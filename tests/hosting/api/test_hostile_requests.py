"""Requests that are no requests: an error of the sender's, and nobody else notices."""

from collections.abc import Iterator

import pytest

from tests.frontends.http.serving import post
from tests.hosting.api.serving import ApiHost, api_host

FINE = post(b'{"EndpointName": "e"}', "/", "X-Amz-Target: SageMaker.DescribeEndpoint")


@pytest.fixture
def host() -> Iterator[ApiHost]:
    with api_host() as running:
        with running.raw() as bystander:
            assert bystander.ask(FINE).status == 200
            yield running
            assert bystander.ask(FINE).status == 200
        assert running.errors == []


def head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (head("POST / HTTP/1.1", "Host: h", *(f"x-{number}: y" for number in range(300))), 431),
        (head("POST / HTTP/1.1", "Host: h", "x-amz-target: " + "x" * 70_000), 431),
        (head("POST / HTTP/1.1", "Host: h", "Content-Length: -1"), 400),
        (head("POST / HTTP/1.1", "Host: h", "Content-Length: 1e3"), 400),
        (head("POST / HTTP/1.1", "Host: h", "Content-Length: " + "9" * 30), 400),
        (head("POST / HTTP/1.1", "Host: h", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (
            head("POST / HTTP/1.1", "Host: h", "Transfer-Encoding: chunked", "X-Amz-Target: a.b") + b"zz\r\n",
            400,
        ),
        (head("FOO / HTTP/1.1", "Host: h"), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (head("POST / HTTP/1.1", "Host: h", "X-Amz-Target: \xe9\xff\x80"), 400),
        (
            head(
                "POST / HTTP/1.1", "Host: h", "X-Amz-Target: SageMaker.DescribeEndpoint", "X-Amz-Target: x.y"
            ),
            400,
        ),
        (head("POST / HTTP/1.1", "Host: h", "Content-Type: application/x-www-form-urlencoded"), 400),
        (head("POST /endpoints/%00/invocations HTTP/1.1", "Host: h"), 400),
        (head("POST /endpoints/%ff%fe/invocations HTTP/1.1", "Host: h"), 400),
        (head("POST /endpoints//invocations HTTP/1.1", "Host: h"), 400),
        (head("POST /endpoints/../../x HTTP/1.1", "Host: h"), 404),
        (head("POST /endpoints/e HTTP/1.1", "Host: h"), 404),
        (head("POST /endpoints/e/async-invocations HTTP/1.1", "Host: h"), 404),
        (head("GET /endpoints/e/invocations HTTP/1.1", "Host: h"), 405),
    ],
)
def test_requests_that_make_no_sense(host: ApiHost, request_bytes: bytes, status: int) -> None:
    with host.raw() as client:
        client.send(request_bytes)
        assert client.read().status == status


def test_a_body_that_is_shorter_than_announced(host: ApiHost) -> None:
    with host.raw() as client:
        client.send(FINE[:-5])
        client.vanish()
    assert len(host.calls) == 1


def test_what_follows_a_body_is_a_request_of_its_own(host: ApiHost) -> None:
    with host.raw() as client:
        client.send(FINE + b"garbage\r\n\r\n")
        assert client.read().status == 200
        assert client.read().status == 400


def test_many_at_once_get_their_own_answers(host: ApiHost) -> None:
    with host.raw() as client:
        client.send(FINE * 50 + post(b"{", "/", "X-Amz-Target: SageMaker.DescribeEndpoint") + FINE)
        assert [client.read().status for _ in range(52)] == [200] * 50 + [400, 200]


def test_the_host_s_own_pages_need_no_signature() -> None:
    with api_host({}, pages={"/ping": lambda request: request.respond(200)}) as host, host.raw() as client:
        assert client.ask(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n", "GET").status == 200
        assert client.ask(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n", "GET").status == 403
