"""Signatures of every service, right and wrong."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.keys import Key
from tests.frontends.http.serving import Answer
from tests.hosting.api.serving import ACCESS_KEY, ACCOUNT, SECRET, ApiHost, api_host
from tests.hosting.instances import fake_instance

KEYS = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, ACCOUNT)}
PUT: dict[str, Any] = {"Namespace": "n", "MetricData": [{"MetricName": "m", "Value": 1}]}

STS, S3 = "sts", "s3"

CODES: dict[str, dict[str, tuple[int, str]]] = {
    STS: {
        "MissingAuthenticationTokenException": (403, "MissingAuthenticationToken"),
        "UnrecognizedClientException": (403, "InvalidClientTokenId"),
        "InvalidSignatureException": (403, "SignatureDoesNotMatch"),
        "IncompleteSignatureException": (403, "IncompleteSignature"),
    },
    S3: {
        "MissingAuthenticationTokenException": (403, "AccessDenied"),
        "UnrecognizedClientException": (403, "InvalidAccessKeyId"),
        "InvalidSignatureException": (403, "SignatureDoesNotMatch"),
        "IncompleteSignatureException": (400, "AuthorizationHeaderMalformed"),
    },
}
"""What the services of other protocols answer where SageMaker answers 403 and this code."""


def refused(service: str, code: str, s3: tuple[int, str] | None = None) -> tuple[int, str]:
    """Status and code with which a service refuses what SageMaker refuses with 403 and a code; S3 may have its own."""
    if service == S3 and s3 is not None:
        return s3
    return CODES.get(service, {}).get(code, (403, code))


CALLS: dict[str, Callable[[Any], Any]] = {
    "sagemaker": lambda client: client.describe_endpoint(EndpointName="e"),
    "cloudwatch": lambda client: client.put_metric_data(**PUT),
    "logs": lambda client: client.get_log_events(logGroupName="g", logStreamName="s"),
    "sts": lambda client: client.get_caller_identity(),
    "sagemaker-runtime": lambda client: client.invoke_endpoint(EndpointName="e", Body=b"x" * 1000),
    "s3": lambda client: client.get_object(Bucket="b", Key="a key/ü+%20..//x"),
}


@pytest.fixture
def host() -> Iterator[ApiHost]:
    with fake_instance() as instance, api_host(KEYS, policy=OriginPolicy(["*"])) as running:
        for region in ("eu-west-1", "x"):
            running.publish("e", instance.port, region=region)
        yield running


@pytest.mark.parametrize("service", CALLS)
def test_a_right_signature_is_let_in(host: ApiHost, service: str) -> None:
    assert CALLS[service](host.client(service))["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_the_caller_is_the_key_s(host: ApiHost) -> None:
    CALLS["sagemaker"](host.client("sagemaker"))
    caller = host.calls[0][2]
    assert (caller.access_key, caller.account, caller.region) == (ACCESS_KEY, ACCOUNT, "eu-west-1")
    assert host.client("sts").get_caller_identity()["Account"] == ACCOUNT


@pytest.mark.parametrize("service", CALLS)
@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        (
            {"aws_secret_access_key": "wrong"},
            "InvalidSignatureException",
            "does not match the signature you provided",
        ),
        (
            {"aws_access_key_id": "AKIDNOBODY"},
            "UnrecognizedClientException",
            "'AKIDNOBODY' is not in this host's keys",
        ),
    ],
)
def test_wrong_keys_stay_out(
    host: ApiHost, service: str, settings: dict[str, str], code: str, text: str
) -> None:
    with pytest.raises(ClientError) as error:
        CALLS[service](host.client(service, **settings))
    status = error.value.response["ResponseMetadata"]["HTTPStatusCode"]
    assert (status, error.value.response["Error"]["Code"]) == refused(service, code)
    assert text in error.value.response["Error"]["Message"]
    assert not host.calls
    assert not host.stored


def code_of(answer: Answer) -> str:
    if answer.body.startswith(b"<"):
        return ET.fromstring(answer.body).findtext(".//Code") or ""
    if "x-amzn-errortype" in answer.headers:
        return answer.headers["x-amzn-errortype"]
    return str(json.loads(answer.body)["__type"])


REQUESTS = {
    "sagemaker": ("POST", "/", {"x-amz-target": "SageMaker.DescribeEndpoint"}, b'{"EndpointName": "e"}'),
    "monitoring": ("POST", "/", {"x-amz-target": "GraniteServiceVersion20100801.ListMetrics"}, b"{}"),
    "logs": (
        "POST", "/", {"x-amz-target": "Logs_20140328.GetLogEvents"}, b'{"logGroupName": "g", "logStreamName": "s"}'
    ),
    "sts": ("POST", "/", {}, b"Action=GetCallerIdentity&Version=2011-06-15"),
    "runtime": ("POST", "/endpoints/e/invocations", {"x-amzn-sagemaker-target-variant": "A"}, b"hello"),
    "s3": ("GET", "/bucket/key", {"x-amz-content-sha256": hashlib.sha256().hexdigest()}, b""),
}  # fmt: skip


def signed(
    name: str,
    port: int,
    service: str | None = None,
    secret: str = SECRET,
    headers: dict[str, str] | None = None,
) -> dict[str, str]:
    """The headers of a request with botocore's signature."""
    method, path, own, body = REQUESTS[name]
    request = AWSRequest(method, f"http://127.0.0.1:{port}{path}", {**own, **(headers or {})}, body)
    signer = SigV4Auth(
        Credentials(ACCESS_KEY, secret), service or ("sagemaker" if name == "runtime" else name), "x"
    )
    signer.add_auth(request)
    return {"host": f"127.0.0.1:{port}", **{key.lower(): value for key, value in request.headers.items()}}


def send(
    host: ApiHost, name: str, headers: dict[str, str], body: bytes | None = None, path: str = ""
) -> Answer:
    method, own, _, usual = REQUESTS[name]
    body = usual if body is None else body
    lines = [f"{method} {path or own} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
    with host.raw() as client:
        return client.ask("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_signature_by_hand(host: ApiHost, name: str) -> None:
    assert send(host, name, signed(name, host.port)).status == 200


@pytest.mark.parametrize("name", REQUESTS)
def test_nobody_comes_in_unsigned(host: ApiHost, name: str) -> None:
    headers = signed(name, host.port)
    del headers["authorization"]
    answer = send(host, name, headers)
    assert (answer.status, code_of(answer)) == refused(name, "MissingAuthenticationTokenException")


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("algorithm", ["AWS4-HMAC-SHA512", "Bearer"])
def test_other_kinds_of_signatures(host: ApiHost, name: str, algorithm: str) -> None:
    headers = signed(name, host.port)
    headers["authorization"] = headers["authorization"].replace("AWS4-HMAC-SHA256", algorithm)
    answer = send(host, name, headers)
    expected = refused(name, "IncompleteSignatureException", (400, "InvalidArgument"))
    assert (answer.status, code_of(answer)) == expected


@pytest.mark.parametrize("name", REQUESTS)
def test_the_host_has_to_be_signed(host: ApiHost, name: str) -> None:
    headers = signed(name, host.port)
    headers["authorization"] = re.sub(
        r"SignedHeaders=(.*?)host;?", r"SignedHeaders=\1", headers["authorization"]
    )
    answer = send(host, name, headers)
    expected = refused(name, "IncompleteSignatureException", (403, "AccessDenied"))
    assert (answer.status, code_of(answer)) == expected
    assert b"There were headers present in the request which were not signed: host" in answer.body


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    "change",
    [
        (r"Credential=[^,]*, ", ""),
        (r"SignedHeaders=[^,]*, ", ""),
        (r", Signature=.*", ""),
        (r"Signature=.*", "Signature="),
        (r"/x/", "/"),
        (r"/x/", "/X Y/"),
        ("aws4_request", "aws5_request"),
    ],
)
def test_incomplete_signatures(host: ApiHost, name: str, change: tuple[str, str]) -> None:
    headers = signed(name, host.port)
    headers["authorization"] = re.sub(*change, headers["authorization"])
    answer = send(host, name, headers)
    assert (answer.status, code_of(answer)) == refused(name, "IncompleteSignatureException")


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    "change",
    [
        (r"Signature=.", "Signature=g"),
        (r"Signature=.*", "Signature=ü"),
        (r"Signature=(.*)", r"Signature=\1\1"),
        (r"/x/", "/us-east-1/"),
        (r"SignedHeaders=", "SignedHeaders=accept;"),
    ],
)
def test_changed_signatures(host: ApiHost, name: str, change: tuple[str, str]) -> None:
    headers = signed(name, host.port)
    headers["authorization"] = re.sub(*change, headers["authorization"])
    answer = send(host, name, headers)
    assert (answer.status, code_of(answer)) == refused(name, "InvalidSignatureException")


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != S3])
def test_a_signature_for_another_service(host: ApiHost, name: str) -> None:
    headers = signed(name, host.port)
    other = "sagemaker" if name in ("logs", "sts") else "logs"
    headers["authorization"] = re.sub(
        r"/(sagemaker|monitoring|logs|sts)/", f"/{other}/", headers["authorization"]
    )
    answer = send(host, name, headers)
    assert (answer.status, code_of(answer)) == refused(name, "InvalidSignatureException")


@pytest.mark.parametrize(("name", "service"), [("s3", "logs"), ("s3", "execute-api"), ("sts", "execute-api")])
def test_only_the_signature_tells_a_call_of_a_service_that_is_not_here(
    host: ApiHost, name: str, service: str
) -> None:
    answer = send(host, name, signed(name, host.port, service))
    assert (answer.status, code_of(answer)) == (404, "UnknownOperationException")
    assert host.stored == []


def test_whatever_is_signed_cannot_be_changed(host: ApiHost) -> None:
    headers = signed("sagemaker", host.port)
    for answer in (
        send(host, "sagemaker", headers, b'{"EndpointName": "f"}'),
        send(host, "sagemaker", {**headers, "x-amz-target": "SageMaker.ListEndpoints"}),
        send(host, "sagemaker", {**headers, "host": "elsewhere"}),
        send(host, "sagemaker", headers, path="/?x"),
        send(host, "runtime", signed("runtime", host.port), path="/endpoints/f/invocations"),
        send(host, "runtime", {**signed("runtime", host.port), "x-amzn-sagemaker-target-variant": "B"}),
    ):
        assert (answer.status, code_of(answer)) == (403, "InvalidSignatureException")
    assert not host.calls


@pytest.mark.parametrize(
    "header", ["x-amz-security-token", "x-amzn-sagemaker-target-model", "X-Amz-Anything"]
)
def test_headers_of_aws_have_to_be_signed(host: ApiHost, header: str) -> None:
    answer = send(host, "runtime", {**signed("runtime", host.port), header: "x"})
    assert (answer.status, code_of(answer)) == (403, "IncompleteSignatureException")
    assert header.lower() in answer.body.decode()


def test_headers_that_change_on_the_way_need_not_be_signed(host: ApiHost) -> None:
    further = {"x-amzn-trace-id": "Root=1", "user-agent": "me", "x-forwarded-for": "1.2.3.4"}
    assert send(host, "sagemaker", {**signed("sagemaker", host.port), **further}).status == 200


def test_headers_that_botocore_never_signs_may_be_signed_by_others(host: ApiHost) -> None:
    """Other SDKs sign all that they send."""

    class Signer(SigV4Auth):  # type: ignore[misc]  # botocore has no types here
        def headers_to_sign(self, request: Any) -> Any:
            headers = super().headers_to_sign(request)
            headers["user-agent"] = "other   sdk"
            return headers

    method, path, own, body = REQUESTS["sagemaker"]
    request = AWSRequest(
        method, f"http://127.0.0.1:{host.port}{path}", {**own, "user-agent": "other sdk"}, body
    )
    Signer(Credentials(ACCESS_KEY, SECRET), "sagemaker", "x").add_auth(request)
    headers = {"host": f"127.0.0.1:{host.port}", **dict(request.headers.items())}
    assert send(host, "sagemaker", headers).status == 200


def test_a_hash_that_is_not_the_body_s_is_refused(host: ApiHost) -> None:
    """The signature covers the hash that a header says; nobody but the host can hold it against the body."""
    body = REQUESTS["sagemaker"][3]
    headers = signed(
        "sagemaker", host.port, headers={"x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
    )
    assert send(host, "sagemaker", headers).status == 200
    answer = send(host, "sagemaker", headers, b'{"EndpointName": "f"}')
    assert (answer.status, code_of(answer)) == (403, "InvalidSignatureException")
    assert "X-Amz-Content-SHA256" in answer.body.decode()
    headers = signed("runtime", host.port, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    assert send(host, "runtime", headers).status == 403
    assert len(host.calls) == 1


def test_a_signature_for_the_store_needs_a_hash(host: ApiHost) -> None:
    method, path, _, body = REQUESTS["s3"]
    request = AWSRequest(method, f"http://127.0.0.1:{host.port}{path}", {}, body)
    SigV4Auth(Credentials(ACCESS_KEY, SECRET), "s3", "x").add_auth(request)
    answer = send(host, "s3", {"host": f"127.0.0.1:{host.port}", **dict(request.headers.items())})
    assert (answer.status, code_of(answer)) == (400, "InvalidRequest")
    assert b"Missing required header for this request: x-amz-content-sha256" in answer.body


@pytest.mark.parametrize("name", [name for name in REQUESTS if name not in ("sts", S3)])
def test_a_signature_is_for_one_service(host: ApiHost, name: str) -> None:
    answer = send(host, name, signed(name, host.port, "execute-api"))
    assert (answer.status, code_of(answer)) == refused(name, "InvalidSignatureException")
    assert "Credential should be scoped to correct service: '" in answer.body.decode()


@pytest.mark.parametrize(
    ("minutes", "status"), [(-16, 403), (-14, 200), (0, 200), (14, 200), (16, 403), (-60 * 24 * 400, 403)]
)
@pytest.mark.parametrize("name", REQUESTS)
def test_clocks_may_differ_by_a_quarter_of_an_hour(name: str, minutes: int, status: int) -> None:
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    with fake_instance() as instance, api_host(KEYS, lambda: now) as host:
        host.publish("e", instance.port, region="x")
        answer = send(host, name, signed(name, host.port))
        assert answer.status == status
        if status == 403:
            expected = refused(name, "InvalidSignatureException", (403, "RequestTimeTooSkewed"))
            assert (answer.status, code_of(answer)) == expected
            is_late = minutes > 0
            what = "Signature expired: " if is_late else "Signature not yet current: "
            assert what in answer.body.decode()
            assert f"({now:%Y%m%dT%H%M%SZ} {'-' if is_late else '+'} 15 min.)" in answer.body.decode()


@pytest.mark.parametrize("stamp", ["", "now", "2026-01-01T00:00:00Z", "20261301T000000Z"])
def test_times_that_are_none(host: ApiHost, stamp: str) -> None:
    headers = signed("sagemaker", host.port)
    answer = send(host, "sagemaker", {**headers, "x-amz-date": stamp})
    assert (answer.status, code_of(answer)) == (403, "IncompleteSignatureException")


def test_the_day_of_the_scope_is_that_of_the_time(host: ApiHost) -> None:
    headers = signed("sagemaker", host.port)
    headers["authorization"] = re.sub(r"/\d{8}/", "/20200101/", headers["authorization"])
    answer = send(host, "sagemaker", headers)
    assert (answer.status, code_of(answer)) == (403, "InvalidSignatureException")


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256 " + "a" * 60_000,
        "AWS4-HMAC-SHA256 " + "," * 60_000,
        "AWS4-HMAC-SHA256 " + "a=b," * 15_000,
        "AWS4-HMAC-SHA256 " + "=" * 60_000,
        "AWS4-HMAC-SHA256 Credential=" + "/" * 60_000,
    ],
)
def test_long_headers_are_refused_at_once(host: ApiHost, authorization: str) -> None:
    begin = datetime.now(UTC)
    answer = send(host, "sagemaker", {**signed("sagemaker", host.port), "authorization": authorization})
    assert (answer.status, code_of(answer)) == (403, "IncompleteSignatureException")
    assert datetime.now(UTC) - begin < timedelta(seconds=1)


@pytest.mark.parametrize("name", ["[", "a[b", "a/b?c#d", "", "@"])
def test_strange_hosts_are_no_error_of_ours(host: ApiHost, name: str) -> None:
    answer = send(host, "sagemaker", {**signed("sagemaker", host.port), "host": name})
    assert (answer.status, code_of(answer)) == (403, "InvalidSignatureException")


def test_strangers_are_turned_away_before_their_body_comes(host: ApiHost) -> None:
    with host.raw() as client:
        client.send(
            b"POST /endpoints/e/invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        answer = client.read()
    assert (answer.status, code_of(answer)) == (403, "MissingAuthenticationTokenException")


def test_payloads_have_a_limit_here_too() -> None:
    with fake_instance() as instance, api_host(KEYS, payload_bytes=1000) as host:
        host.publish("e", instance.port)
        client = host.client("sagemaker-runtime")
        body = bytes(range(250)) * 4
        assert client.invoke_endpoint(EndpointName="e", Body=body)["Body"].read() == body
        with pytest.raises(ClientError) as error:
            client.invoke_endpoint(EndpointName="e", Body=body + b"x")
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


def test_a_large_body_is_verified_and_passed_on_as_it_is() -> None:
    with fake_instance() as instance, api_host(KEYS, payload_bytes=8 << 20) as host:
        host.publish("e", instance.port)
        body = bytes(range(256)) * 20_000
        answer = host.client("sagemaker-runtime").invoke_endpoint(EndpointName="e", Body=body)
        assert answer["Body"].read() == body
