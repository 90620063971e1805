"""Calls of services that the host does not have, by their own clients."""

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.access.keys import Key
from halimede.hosting.api.other_services import answer_error
from halimede.hosting.errors import ApiError
from tests.hosting.api.serving import ACCESS_KEY, SECRET, ApiHost, api_host

CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    # a service whose calls have paths of their own, …
    "lambda": ("invoke", {"FunctionName": "f", "Payload": b"x" * 2_000_000}, "lambda"),
    "bedrock-runtime": ("invoke_model", {"modelId": "m", "body": b"{}"}, "bedrock"),
    "cloudfront": ("list_distributions", {}, "cloudfront"),
    "route53": ("list_hosted_zones", {}, "route53"),
    # … one whose operation is a header, …
    "dynamodb": ("list_tables", {}, "dynamodb"),
    "ecr": ("get_authorization_token", {}, "ecr"),
    "secretsmanager": ("get_secret_value", {"SecretId": "s"}, "secretsmanager"),
    "sqs": ("list_queues", {}, "sqs"),
    # … and one that sends forms
    "ec2": ("describe_instance_types", {"InstanceTypes": ["m5.large"]}, "ec2"),
    "cloudformation": ("describe_stacks", {}, "cloudformation"),
    "elb": ("describe_load_balancers", {}, "elasticloadbalancing"),
}


@pytest.fixture(scope="module")
def host() -> Iterator[ApiHost]:
    with api_host() as running:
        yield running


@pytest.mark.parametrize("service", CALLS)
def test_the_service_is_refused_by_its_name(host: ApiHost, service: str) -> None:
    operation, arguments, name = CALLS[service]
    with pytest.raises(ClientError) as refused:
        getattr(host.client(service), operation)(**arguments)
    error = refused.value.response["Error"]
    assert error["Code"] == "UnknownOperationException"
    assert error["Message"] == (
        f"the service '{name}' is not available here; this host has application-autoscaling, logs, monitoring, s3, "
        f"sagemaker, sts"
    )
    assert host.stored == []


@pytest.mark.parametrize(
    ("content_type", "answered"),
    [
        ("application/x-www-form-urlencoded", "text/xml"),
        ("Application/X-WWW-Form-URLEncoded ; charset=utf-8", "text/xml"),
        ("application/x-www-form-urlencoded-not", "application/json"),
        ("application/x-amz-json-1.1", "application/json"),
    ],
)
def test_the_refusal_has_the_format_of_the_request(content_type: str, answered: str) -> None:
    request = Mock(head=Mock(headers={"content-type": content_type}))
    answer_error(request, ApiError("UnknownOperationException", "not here", 404), "ec2", "1")
    (_, _, headers), _ = request.respond.call_args
    assert dict(headers)["Content-Type"] == answered


def test_path_of_a_service_that_is_there_is_no_object_of_the_store(host: ApiHost) -> None:
    client = host.client("sagemaker-featurestore-runtime")
    with pytest.raises(ClientError, match="GET /FeatureGroup/g of the service 'sagemaker' is not available"):
        client.get_record(FeatureGroupName="g", RecordIdentifierValueAsString="1")
    assert host.stored == []


def test_caller_without_a_key_is_told_so_first(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.CRITICAL, "halimede"),
        api_host(keys={"other": Key("other", SECRET, "000000000000", ("*",))}) as host,
        pytest.raises(ClientError, match=f"The access key '{ACCESS_KEY}' is not in this host's keys file"),
    ):
        host.client("lambda").list_functions()


def test_caller_with_a_key_is_told_that_there_is_no_such_service() -> None:
    key = Key(ACCESS_KEY, SECRET, "000000000000", ("*",))
    with api_host(keys={ACCESS_KEY: key}) as host:
        for service in ("lambda", "ec2", "dynamodb"):
            operation, arguments, _ = CALLS[service]
            with pytest.raises(ClientError, match="is not available here"):
                getattr(host.client(service), operation)(**arguments)
