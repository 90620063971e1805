"""The JSON protocols, asked by boto3 and by hand."""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.frontends.http.serving import Answer, post
from tests.hosting.api.serving import VARIANT, WHEN, ApiHost, api_host


@pytest.fixture
def host() -> Iterator[ApiHost]:
    with api_host() as running:
        yield running


def ask(host: ApiHost, target: str, body: bytes, *lines: str) -> Answer:
    with host.raw() as client:
        return client.ask(post(body, "/", f"X-Amz-Target: {target}", *lines))


def error_of(answer: Answer) -> tuple[int, str, str]:
    document = json.loads(answer.body)
    return answer.status, document["__type"], document["message"]


def test_a_request_gets_to_its_operation(host: ApiHost) -> None:
    arn = host.client("sagemaker").create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[VARIANT]
    )
    assert arn["EndpointConfigArn"].endswith("endpoint-config/c")
    assert arn["ResponseMetadata"]["RequestId"]
    [(name, request, caller)] = host.calls
    assert (name, request) == (
        "CreateEndpointConfig",
        {"EndpointConfigName": "c", "ProductionVariants": [VARIANT]},
    )
    assert (caller.access_key, caller.account, caller.region) == ("AKIDEXAMPLE", "000000000000", "eu-west-1")


def test_times_come_back_to_the_millisecond(host: ApiHost) -> None:
    assert host.client("sagemaker").describe_endpoint(EndpointName="e")["CreationTime"] == WHEN


def test_an_unsigned_request_is_of_the_usual_caller(host: ApiHost) -> None:
    answer = ask(host, "SageMaker.DescribeEndpoint", b'{"EndpointName": "e"}')
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-amz-json-1.1"
    assert host.calls[0][2].region == "us-east-1"


@pytest.mark.parametrize(
    "header", ["Basic abc", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request"]
)
def test_where_nothing_is_verified_any_signature_will_do(host: ApiHost, header: str) -> None:
    answer = ask(host, "SageMaker.DescribeEndpoint", b'{"EndpointName": "e"}', f"Authorization: {header}")
    assert answer.status == 200


def test_a_region_that_is_none_does_not_get_into_names(host: ApiHost) -> None:
    header = (
        "AWS4-HMAC-SHA256 Credential=a/20260101/'<x>/sagemaker/aws4_request, SignedHeaders=host, Signature=0"
    )
    answer = ask(host, "SageMaker.DescribeEndpoint", b'{"EndpointName": "e"}', f"Authorization: {header}")
    assert answer.status == 200
    assert host.calls[0][2].region == "us-east-1"


def test_refusals_are_errors_of_boto3(host: ApiHost) -> None:
    with pytest.raises(ClientError) as error:
        host.client("sagemaker").describe_endpoint(EndpointName="bad_name!")
    assert error.value.response["Error"]["Code"] == "ValidationException"
    assert "at 'endpointName' failed to satisfy constraint" in error.value.response["Error"]["Message"]
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize("body", [b"", b"{}", b" {} "])
def test_an_empty_body_is_an_empty_request(host: ApiHost, body: bytes) -> None:
    assert ask(host, "SageMaker.ListEndpoints", body).status == 200


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is not JSON: "),
        (b"\xff\xff", "the body is not JSON: "),
        (b"[]", "the body is not a JSON object"),
        (b'"x"', "the body is not a JSON object"),
        (b"null", "the body is not a JSON object"),
        (b'{"EndpointName": NaN}', "the body is not JSON: "),
        (b'{"EndpointName": 1e999}', "the body is not JSON: "),
        (b'{"EndpointName": "\\ud800"}', "the body is not JSON: "),
        (b'{"EndpointName": 12345678901234567890123}', "the number 1.2345678901234568e+22 at 'endpointName'"),
        (b'{"EndpointName": "e", "x": ' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper than 64 levels"),
        (
            b'{"EndpointName": "e", "x": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
            "nested deeper than 64 levels",
        ),
        (b"[" * 100_000, "the body is not JSON: "),
        (
            b'{"EndpointName": ' + b"[" * 50 + b"]" * 50 + b"}",
            "a list at 'endpointName' cannot be converted to string",
        ),
    ],
)
def test_bodies_that_are_no_requests(host: ApiHost, body: bytes, text: str) -> None:
    status, code, message = error_of(ask(host, "SageMaker.DescribeEndpoint", body))
    assert (status, code) == (400, "SerializationException")
    assert text in message
    assert not host.calls


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            "SageMaker.CreateTrainingJob",
            "CreateTrainingJob is not available in this version: more comes later. Available",
        ),
        (
            "SageMaker.Foo",
            "Foo is no operation of sagemaker: more comes later. Available are AddTags, CreateEndpointConf",
        ),
        ("SageMaker.", " is no operation of sagemaker"),
        ("SageMaker", "there is no service '' here"),
        ("", "there is no service '' here"),
        (".", "there is no service '' here"),
        (
            "Foo.Bar",
            "there is no service 'Foo' here; there are AnyScaleFrontendService, GraniteServiceVersion20100801",
        ),
        (
            "AnyScaleFrontendService.RegisterScalableTarget",
            "is not available in this version: autoscaling comes later",
        ),
        (
            "Logs_20140328.PutLogEvents",
            "PutLogEvents is not available in this version. Available are GetLogEvents",
        ),
        ("x" * 10_000 + ".y", "there is no service 'xxxx"),
    ],
)
def test_unknown_operations_are_named(host: ApiHost, target: str, text: str) -> None:
    status, code, message = error_of(ask(host, target, b"{}"))
    assert (status, code) == (400, "UnknownOperationException")
    assert text in message
    assert len(message) < 1_000


def test_what_autoscaling_offers_is_not_a_list_of_nothing(host: ApiHost) -> None:
    with pytest.raises(ClientError, match="UnknownOperation") as error:
        host.client("application-autoscaling").describe_scalable_targets(ServiceNamespace="sagemaker")
    assert error.value.response["Error"]["Message"] == (
        "DescribeScalableTargets is not available in this version: autoscaling comes later"
    )


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (
            "put_metric_alarm",
            {"AlarmName": "a", "EvaluationPeriods": 1, "ComparisonOperator": "GreaterThanThreshold"},
        ),
        ("describe_alarms", {}),
        ("delete_alarms", {"AlarmNames": ["a"]}),
        ("set_alarm_state", {"AlarmName": "a", "StateValue": "OK", "StateReason": "r"}),
    ],
)
def test_alarms_say_what_there_is_instead(host: ApiHost, method: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as error:
        getattr(host.client("cloudwatch"), method)(**arguments)
    assert error.value.response["Error"]["Code"] == "UnknownOperationException"
    assert error.value.response["Error"]["Message"].endswith(
        "is not available in this version. Available are GetMetricData, "
        "GetMetricStatistics, ListMetrics, PutMetricData"
    )


def test_each_service_has_its_own_code_for_bad_requests(host: ApiHost) -> None:
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("sagemaker", "describe_endpoint", {}, "ValidationException"),
        ("logs", "get_log_events", {"logGroupName": "g"}, "InvalidParameterException"),
        ("cloudwatch", "put_metric_data", {"Namespace": ""}, "ValidationError"),
    ]
    for service, method, arguments, code in cases:
        with pytest.raises(ClientError, match="validation error") as error:
            getattr(host.client(service), method)(**arguments)
        assert error.value.response["Error"]["Code"] == code


def test_cloudwatch_speaks_json_1_0_with_codes_of_the_query_protocol(host: ApiHost) -> None:
    client = host.client("cloudwatch")
    with pytest.raises(client.exceptions.InvalidParameterValueException) as error:
        client.put_metric_data(Namespace="AWS/X", MetricData=[{"MetricName": "m", "Value": 1}])
    assert error.value.response["Error"]["Code"] == "InvalidParameterValue"
    lines = ("x-amzn-query-mode: true", "Content-Type: application/x-amz-json-1.0")
    answer = ask(host, "GraniteServiceVersion20100801.PutMetricData", b"{", *lines)
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert answer.headers["x-amzn-query-error"] == "SerializationException;Sender"


def test_large_requests_come_compressed(host: ApiHost) -> None:
    data = [{"MetricName": f"m{index}", "Value": 1, "Unit": "Count"} for index in range(1000)]
    host.client("cloudwatch").put_metric_data(Namespace="n", MetricData=data)
    assert len(host.client("cloudwatch").list_metrics(Namespace="n")["Metrics"]) == 500
    assert host.loop.call(lambda: host.stores.count("000000000000")) == 1000


@pytest.mark.parametrize(
    ("body", "coding", "status", "text"),
    [
        (b"{}", "gzip", 400, "the body is not gzip"),
        (gzip.compress(b"{}")[:-4], "gzip", 400, "it does not end where it should"),
        (gzip.compress(b"{}") + b"x", "gzip", 400, "it does not end where it should"),
        (gzip.compress(b" " * (200 << 20)), "gzip", 413, "more than the allowed 1048576 bytes"),
        (b"{}", "br", 400, "Content-Encoding 'br' is not supported; use gzip"),
    ],
)
def test_bodies_that_are_not_what_their_coding_says(
    host: ApiHost, body: bytes, coding: str, status: int, text: str
) -> None:
    answer = ask(host, "SageMaker.ListEndpoints", body, f"Content-Encoding: {coding}")
    assert answer.status == status
    assert text in answer.body.decode()


def test_a_compressed_request(host: ApiHost) -> None:
    body = gzip.compress(b'{"EndpointName": "e"}')
    assert ask(host, "SageMaker.DescribeEndpoint", body, "Content-Encoding: gzip").status == 200


def test_a_body_that_is_too_large_is_refused_before_it_comes(host: ApiHost) -> None:
    with host.raw() as client:
        client.send(
            b"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: SageMaker.ListEndpoints\r\nContent-Length: 99999999\r\n\r\n"
        )
        answer = client.read()
    assert error_of(answer)[:2] == (413, "RequestEntityTooLargeException")


def test_cbor_is_refused_clearly_and_a_bucket_may_be_called_service(host: ApiHost) -> None:
    with host.raw() as client:
        path = "/service/GraniteServiceVersion20100801/operation/ListMetrics"
        answer = client.ask(post(b"", path, "smithy-protocol: rpc-v2-cbor"))
        assert error_of(answer)[:2] == (404, "UnknownOperationException")
        assert client.ask(post(b"", "/service/key")).status == 200
    assert host.stored == ["POST /service/key"]


def test_unknown_members_reach_the_operation_and_are_warned_of(host: ApiHost) -> None:
    body = b'{"EndpointName": "e", "Later": {"deep": [1, {"x": null}]}}'
    assert ask(host, "SageMaker.DescribeEndpoint", body).status == 200
    assert host.calls[0][1]["Later"] == {"deep": [1, {"x": None}]}
    assert host.warnings == ["members that are not known have no effect: Later"]


def test_the_largest_request_does_not_hold_others_up_for_long(host: ApiHost) -> None:
    """Whoever asks meanwhile waits for a moment at most."""
    entries = b'{"MetricName":"a","Value":1},' * 35_000
    body = b'{"Namespace":"n","MetricData":[' + entries[:-1] + b"]}"
    assert len(body) < 1 << 20
    with host.raw() as client, host.raw() as other:
        client.send(post(body, "/", "X-Amz-Target: GraniteServiceVersion20100801.PutMetricData"))
        begin = time.process_time()  # this process is the host's, too, and a busy machine does not count
        other.ask(post(b'{"EndpointName": "e"}', "/", "X-Amz-Target: SageMaker.DescribeEndpoint"))
        assert time.process_time() - begin < 2
        assert "1 to 1000 entries, got 35000" in client.read().body.decode()


def test_an_operation_that_fails_is_an_internal_error_of_one_request() -> None:
    async def broken(_: Any, __: Any) -> dict[str, Any]:
        raise RuntimeError("nobody foresaw this")

    with api_host(operations={"DescribeEndpoint": broken}) as host:
        with host.raw() as client:
            body = b'{"EndpointName": "e"}'
            answer = client.ask(post(body, "/", "X-Amz-Target: SageMaker.DescribeEndpoint"))
            assert answer.status == 500
            assert client.ask(post(b"", "/", "X-Amz-Target: SageMaker.ListEndpoints")).status == 200
        [error] = host.errors
        assert "nobody foresaw this" in error
        host.errors.clear()
