"""Every operation of a real host with odd values in every member: an error of the client's, never of the host's."""

import asyncio
import base64
import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from itertools import count, islice
from typing import Any
from urllib.parse import urlencode

import pytest

from halimede.hosting.api.services import Service
from tests.hosting.access.test_references import services
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

WRONG: dict[str, tuple[Any, ...]] = {
    "structure": (1, "x", [], [{}], True),
    "map": (1, "x", [], [{}], True),
    "list": (1, "x", {}, {"a": []}, False),
    "string": (1, -1.5, [], {}, [[]], True),
    "boolean": (1, "true", [], {}),
    "integer": ("1", 1.5, [], {}, True, 2**31, -(2**31) - 1, 10**400),
    "long": ("1", 1.5, [], {}, True, 2**63, -(2**63) - 1, 10**400),
    "float": ("1", [], {}, True, 10**400),
    "double": ("1", [], {}, True, 10**400),
    "timestamp": ([], {}, True, "x", 1e300, -1e300, "9999-12-31T23:59:59-14:00", 10**400),
    "blob": (1, [], {}, True),
}
"""Values that are not of a shape's type."""

ODD: dict[str, tuple[Any, ...]] = {
    "structure": ({},),
    "map": ({}, {"": ""}, {"x" * 300: "x"}),
    "list": ([],),
    "string": (
        "", "x", "\x00", "a\x00b", "../..", "/", " ", "\u202e", "\U0010ffff", "x" * 300, "é" * 200, "%s%n{}", "9" * 40,
        "-1", "1e999", "NaN", "arn:", "arn:aws:sns:::", "arn:aws:sns:us-east-1:000000000000:", "endpoint//variant/",
        "endpoint/a/variant/b", "s3://", "s3://x", "s3:///x", "https://x", "((((", "cron(0 0 31 2 ? *)",
        "cron(99999999999999999999 * * * ? *)", "rate(99999999999999999999 days)", "at(9999-12-31T23:59:59)",
        "at(0001-01-01T00:00:00)", "NOT " * 50 + "TRUE", "(" * 200, "{ $.a = 1 }", "[a,b", "p99.9", "PR(:)",
        "TM(1e400:2)", "[", "{", '"', "{}", '{"default": 1}', "-P99999999999999999999D", "PT",
        '{"recentDatapoints": [1e308, true, null], "threshold": []}', "<![CDATA[", "&#0;",
    ),
    "boolean": (True, False),
    "integer": (0, -1, 2**31 - 1, -(2**31)),
    "long": (0, -1, 2**63 - 1, -(2**63)),
    "float": (0, -0.0, 1e308, -1e308, 1e-320, 2**63),
    "double": (0, -0.0, 1e308, -1e308, 1e-320, 2**63, -(2**63)),
    "timestamp": (0, -62135596800, 253402300799, "0001-01-01T00:00:00Z", 0.1e-300),
    "blob": ("", "=", "\x00"),
}  # fmt: skip
"""Values of a shape's type that hardly make sense."""

NEEDED = {
    "ServiceNamespace": "sagemaker",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    "ResourceId": "endpoint/e/variant/A",
    "InstanceType": "ml.local.cpu",
}


def sample(shape: Any, member: str = "") -> Any:
    """A value of a shape that passes its model."""
    kind = shape.type_name
    if kind == "structure":
        names = {*shape.required_members, *(NEEDED.keys() & shape.members.keys())}
        return {name: sample(shape.members[name], name) for name in sorted(names)}
    if kind == "list":
        return [sample(shape.member, member)] * max(1, shape.metadata.get("min", 1))
    if kind == "string":
        values = shape.metadata.get("enum")
        text = (
            values[0] if values else "s3://bucket/x" if "S3" in member else "x" * shape.metadata.get("min", 1)
        )
        role = "arn:aws:iam::000000000000:role/x" if member.endswith(("Arn", "ARN")) else ""
        return NEEDED.get(member) or role or text or "x"
    others = {"map": {}, "timestamp": 1767225600, "blob": base64.b64encode(b"x").decode(), "boolean": True}
    return others.get(kind, max(1, shape.metadata.get("min", 1)))


Step = str | int
"""A member, or 0 for the entries of a list or of a map."""


def places(shape: Any, above: frozenset[str] = frozenset()) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """Every place in a shape, and the shape there."""
    if shape.name in above:
        return
    yield (), shape
    above |= {shape.name}
    below: list[tuple[Step, Any]] = []
    if shape.type_name == "structure":
        below = list(shape.members.items())
    elif shape.type_name == "list":
        below = [(0, shape.member)]
    elif shape.type_name == "map":
        below = [(0, shape.value)]
    for step, member in below:
        yield from (((step, *path), found) for path, found in places(member, above))


def put(shape: Any, document: Any, path: tuple[Step, ...], value: Any) -> Any:
    """The document with a value at a place, and samples around it."""
    if not path:
        return value
    step, *rest = path
    if shape.type_name == "list":
        return [put(shape.member, sample(shape.member), tuple(rest), value)]
    if shape.type_name == "map":
        return {"k": put(shape.value, sample(shape.value), tuple(rest), value)}
    member = shape.members[step]
    return {**document, step: put(member, document.get(step, sample(member, str(step))), tuple(rest), value)}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with start_host(tmp_path_factory.mktemp("odd") / "host") as running:
        yield running


@pytest.fixture(scope="module")
def every_service(tmp_path_factory: pytest.TempPathFactory) -> list[Service]:
    return asyncio.run(services(tmp_path_factory.mktemp("services")))


class Caller:
    """Sends requests to a host on one connection."""

    def __init__(self, host: HostProcess) -> None:
        self._connection = HTTPConnection("127.0.0.1", int(host.url.rpartition(":")[2]), timeout=60)

    def call(self, service: Service, operation: str, document: Any) -> int:
        """The status of the answer to a request."""
        prefix = service.model.metadata.get("targetPrefix")
        if prefix is not None:
            headers = {"X-Amz-Target": f"{prefix}.{operation}"}
            return self.send(json.dumps(document).encode(), headers)
        fields = {"Action": operation, "Version": service.model.api_version, **dict(flat("", document))}
        return self.send(urlencode(fields, errors="replace").encode(), {})

    def send(self, body: bytes, headers: dict[str, str]) -> int:
        self._connection.request("POST", "/", body, headers)
        with self._connection.getresponse() as response:
            response.read()
            return response.status

    def close(self) -> None:
        self._connection.close()


def flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A value as fields of a form."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from flat(f"{name}.{key}" if name else key, below)
    elif isinstance(value, list):
        for number, below in enumerate(value, 1):
            yield from flat(f"{name}.member.{number}", below)
    elif name:
        yield name, str(value)


@pytest.fixture
def caller(host: HostProcess) -> Iterator[Caller]:
    made = Caller(host)
    yield made
    made.close()
    assert "Traceback" not in host.log


@pytest.mark.parametrize("seed", [0, 1])
def test_odd_values_in_every_member_are_no_errors_of_the_host(
    caller: Caller, every_service: list[Service], seed: int
) -> None:
    turns = count(seed)
    failed, sent = [], 0
    for service in every_service:
        for operation in service.operations:
            shape = service.model.operation_model(operation).input_shape
            for path, found in places(shape) if shape is not None else ():
                values = ODD[found.type_name]
                first = next(turns) * 5
                for value in {
                    repr(each): each for each in islice(values * 2, first % len(values), None)
                }.values():
                    status = caller.call(service, operation, put(shape, sample(shape), path, value))
                    sent += 1
                    if status >= 500:
                        failed.append((operation, path, value, status))
                    if sent % 3 == seed:
                        break
    assert failed == []
    assert sent > 2000


def test_values_of_wrong_types_in_every_member_are_refused(
    caller: Caller, every_service: list[Service]
) -> None:
    turns = count()
    failed, sent = [], 0
    for service in every_service:
        if "targetPrefix" not in service.model.metadata:
            continue  # a form has texts only
        for operation in service.operations:
            shape = service.model.operation_model(operation).input_shape
            for path, found in places(shape):
                wrong = WRONG[found.type_name]
                for value in (wrong[next(turns) % len(wrong)], wrong[next(turns) % len(wrong)]):
                    status = caller.call(service, operation, put(shape, sample(shape), path, value))
                    sent += 1
                    if status != 400:
                        failed.append((operation, path, value, status))
    assert failed == []
    assert sent > 1500


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' * 70 + b"1" + b"}" * 70,
        b'{"EndpointName": ' + b"[" * 60 + b"]" * 60 + b"}",
        b'{"EndpointName": ' + b"9" * 5001 + b"}",
        b'{"EndpointName": 1e999}',
        b'{"EndpointName": "\\ud800"}',
        b'{"EndpointName": "\xff"}',
        b'{"EndpointName": NaN}',
        b"\xef\xbb\xbf",
        b"null",
        b'"x"',
        b"\x00",
        b'{"\\u0000": 1, "": [], "EndpointName": null}',
    ],
)
def test_bodies_that_are_no_requests_are_refused(
    caller: Caller, every_service: list[Service], body: bytes
) -> None:
    for service in every_service:
        prefix = service.model.metadata.get("targetPrefix")
        if prefix is not None:
            target = next(
                name for name in service.operations if service.model.operation_model(name).input_shape
            )
            assert caller.send(body, {"X-Amz-Target": f"{prefix}.{target}"}) in (
                200,
                400,
            )  # some need no member
    assert caller.send(body, {"X-Amz-Target": "SageMaker.DescribeEndpoint"}) == 400


def test_what_clients_make_the_host_log_is_bounded(caller: Caller, host: HostProcess) -> None:
    before = len(host.log)
    odd = json.dumps({"x" * 300 + str(number): 1 for number in range(1000)} | {"EndpointName": "e"}).encode()
    for _ in range(300):
        assert caller.send(odd, {"X-Amz-Target": "SageMaker.DescribeEndpoint"}) == 400
    assert len(host.log) - before < 300 * 11_000 / 4


def test_metrics_are_still_saved_after_numbers_that_no_database_holds(
    caller: Caller, every_service: list[Service], host: HostProcess
) -> None:
    cloudwatch = next(service for service in every_service if service.name == "cloudwatch")
    data = [
        {"MetricName": "m", "Value": 2**63},
        {"MetricName": "n", "Values": [2**64 - 1], "Counts": [2**63]},
    ]
    assert caller.call(cloudwatch, "PutMetricData", {"Namespace": "odd", "MetricData": data}) == 200

    def saved() -> set[str]:
        with closing(sqlite3.connect(host.directory / "metrics.db")) as connection:
            return {
                name for (name,) in connection.execute("SELECT name FROM minutes WHERE namespace = 'odd'")
            }

    wait_until(lambda: saved() == {"m", "n"})
    assert "cannot be saved" not in host.log


def test_a_change_of_nothing_does_not_wait_for_others(host: HostProcess) -> None:
    sns = host.client("sns", config={"parameter_validation": False})
    with pytest.raises(sns.exceptions.InvalidParameterException, match="is no ARN of a topic"):
        sns.delete_topic(TopicArn="")
    topic = sns.create_topic(Name="odd")["TopicArn"]
    for _ in range(2):
        sns.delete_topic(TopicArn=topic)
    sns.unsubscribe(SubscriptionArn=f"{topic}:x")
    assert topic not in [each["TopicArn"] for each in sns.list_topics()["Topics"]]


DIGITS = "9" * 5001
HEADERS = (
    f"Content-Length: {DIGITS}",
    f"x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\nX-Amz-Decoded-Content-Length: {DIGITS}",
    f"Range: bytes={DIGITS}-",
    f"Range: bytes=-{DIGITS}",
    "If-Modified-Since: Mon, 01 Jan 99999 00:00:00 GMT",
    "x-amz-copy-source: %ff/%00",
    f"x-amz-copy-source: /odd-bucket/a\r\nx-amz-copy-source-range: bytes=0-{DIGITS}",
    f"x-amz-mp-object-size: {DIGITS}",
    "x-amz-checksum-crc32: x",
    "Content-MD5: x",
    "X-Amz-Date: 99999999T999999Z",
    "Authorization: AWS a:b",
    f"Authorization: AWS4-HMAC-SHA256 Credential=a/{DIGITS}/r/s3/aws4_request, SignedHeaders=host, Signature=x",
    "X-Amzn-SageMaker-Inference-Id: \x01",
    f"X-Amzn-SageMaker-Target-Model: {DIGITS}",
    f"X-Amzn-SageMaker-InputLocation: s3://odd-bucket/a\r\nX-Amzn-SageMaker-RequestTTLSeconds: {DIGITS}",
    "X-Amzn-SageMaker-InputLocation: s3://\xff",
)
TARGETS = (
    "/odd-bucket/a",
    f"/odd-bucket/a?partNumber={DIGITS}&uploadId=x",
    f"/odd-bucket/a?uploadId=x&max-parts={DIGITS}",
    f"/odd-bucket?list-type=2&max-keys={DIGITS}",
    f"/odd-bucket?uploads&max-uploads={DIGITS}",
    f"/odd-bucket/a?Expires={DIGITS}&AWSAccessKeyId=a&Signature=b",
    f"/odd-bucket/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires={DIGITS}&X-Amz-Date=x&X-Amz-Signature=x",
    "/odd-bucket/a?response-content-type=a%0d%0ab",
    "/endpoints/e/invocations",
    "/endpoints/e/async-invocations",
    "/console/logs?endpoint=%ff",
    "/-/subscription?Action=ConfirmSubscription&TopicArn=%ff&Token=x",
    f"/offers/{DIGITS}",
)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "HEAD"])
def test_odd_heads_are_no_errors_of_the_host(caller: Caller, host: HostProcess, method: str) -> None:
    host.client("s3").create_bucket(Bucket="odd-bucket")
    failed = []
    for target in TARGETS:
        for header in HEADERS:
            length = "" if "Content-Length" in header else "Content-Length: 0\r\n"
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}{header}\r\n\r\n"
            with socket.create_connection(("127.0.0.1", int(host.url.rpartition(":")[2])), 60) as connection:
                connection.sendall(head.encode("latin-1") + b"x" * (not length))
                connection.shutdown(socket.SHUT_WR)
                status = connection.recv(65536)[9:12]
            if status not in (b"501", b"") and not status.startswith(
                (b"2", b"4")
            ):  # 501: not in this version
                failed.append((target, header, status))
    assert failed == []
