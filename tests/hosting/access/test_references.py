"""What a request names, over every text of every operation that the host has."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from halimede.hosting.access.keys import Key
from halimede.hosting.access.permissions import check_account, check_endpoints
from halimede.hosting.access.references import FREE_TEXT, references_of
from halimede.hosting.api.services import Service
from halimede.hosting.errors import ApiError
from halimede.hosting.host import Host
from halimede.hosting.identity import Caller
from halimede.hosting.settings import HostSettings
from halimede.hosting.substrates.base import Resources

OURS, THEIRS, REGION = "111111111111", "222222222222", "us-east-1"
CALLER = Caller("KEY", OURS, REGION)
KEY = Key("KEY", "secret", OURS, endpoints=("allowed-*",))

ENDPOINT = f"arn:aws:sagemaker:{REGION}:{{account}}:endpoint/{{name}}"
POLICY = (
    f"arn:aws:autoscaling:{REGION}:{{account}}:scalingPolicy:0f1e:resource/sagemaker/endpoint/{{name}}/variant/A:"
    f"policyName/p"
)
GROUP = "/aws/sagemaker/Endpoints/{name}"

ARNS = (
    ENDPOINT,
    POLICY,
    f"arn:aws:sagemaker:{REGION}:{{account}}:model/{{name}}",
    f"arn:aws:sns:{REGION}:{{account}}:{{name}}",
    f"arn:aws:cloudwatch:{REGION}:{{account}}:alarm:{{name}}",
    f"arn:aws:logs:{REGION}:{{account}}:log-group:{GROUP}:*",
    f"arn:aws:application-autoscaling:{REGION}:{{account}}:scalable-target/{{name}}",
    f"arn:aws-cn:sagemaker:{REGION}:{{account}}:endpoint/{{name}}",
)
"""What the host has, as ARNs."""

NAMING = (
    ENDPOINT,
    POLICY,
    GROUP,
    f"arn:aws:logs:{REGION}:{{account}}:log-group:{GROUP}:*",
    "endpoint/{name}/variant/A",
)
"""What names an endpoint, wherever it stands."""


class Text(NamedTuple):
    """A place for a text in an operation's request.

    Attributes:
        service: its service.
        operation: the operation's name.
        path: the members that lead there; "[]" for an entry of a list, "{}" for a value of a map, and "{k}" or
            "{k{}}" for a key whose value is a text or a structure.
        kind: its shape's name.
        pattern: its shape's pattern, "" for none.
    """

    service: Service
    operation: str
    path: tuple[str, ...]
    kind: str
    pattern: str

    @property
    def member(self) -> str:
        """The member that holds it."""
        return next(part for part in reversed(self.path) if part[0] not in "[{")

    @property
    def is_free(self) -> bool:
        """Whether it names nothing."""
        return self.member in FREE_TEXT or self.kind in FREE_TEXT

    def request(self, text: str) -> Mapping[str, Any]:
        """A request that has a text there, and nothing else."""
        value: Any = text
        for part in reversed(self.path):
            if part.startswith("{k"):
                value = {value: {} if part == "{k{}}" else "x"}
            else:
                value = [value] if part == "[]" else {_key(part): value}
        request: Mapping[str, Any] = value
        return request


def _key(part: str) -> str:
    return "x" if part == "{}" else part


def places(shape: Any, path: tuple[str, ...], above: frozenset[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Where a shape has texts."""
    if shape.name in above:
        return
    above |= {shape.name}
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from places(member, (*path, name), above)
    elif shape.type_name == "list":
        yield from places(shape.member, (*path, "[]"), above)
    elif shape.type_name == "map":
        yield from places(
            shape.key, (*path, "{k{}}" if shape.value.type_name == "structure" else "{k}"), above
        )
        yield from places(shape.value, (*path, "{}"), above)
    elif shape.type_name == "string" and not shape.metadata.get("enum"):
        yield path, shape


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Text]:
    """Every text of every operation."""
    return [
        Text(service, name, path, shape.name, shape.metadata.get("pattern", ""))
        for service in asyncio.run(services(tmp_path_factory.mktemp("host")))
        for name in service.operations
        for path, shape in places(service.model.operation_model(name).input_shape, (), frozenset())
        if service.model.operation_model(name).input_shape is not None
    ]


async def services(directory: Path) -> list[Service]:
    return Host(HostSettings(directory, Resources(1, 1 << 30), port=0)).services()


def refused(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ApiError as error:
        return error.status == 403
    return False


def named(text: Text, value: str) -> Any:
    return text.service.references(text.operation, text.request(value))


def test_the_walk_reaches_every_service(texts: list[Text]) -> None:
    assert {text.service.name for text in texts} == {
        "sagemaker", "application-autoscaling", "cloudwatch", "logs", "iam", "sns",
    }  # fmt: skip
    paths = {(text.operation, text.path) for text in texts}
    assert (
        "CreateEndpointConfig",
        ("AsyncInferenceConfig", "OutputConfig", "NotificationConfig", "ErrorTopic"),
    ) in paths
    assert ("PutMetricAlarm", ("AlarmActions", "[]")) in paths
    assert len(paths) > 400


@pytest.mark.parametrize("form", ARNS)
def test_an_arn_of_another_account_is_refused_in_every_member(texts: list[Text], form: str) -> None:
    theirs, ours = (form.format(account=account, name="allowed-1") for account in (THEIRS, OURS))
    passed = [
        text
        for text in texts
        if not text.is_free and not refused(check_account, CALLER, "a:B", named(text, theirs))
    ]
    assert passed == []
    denied = [text for text in texts if refused(check_account, CALLER, "a:B", named(text, ours))]
    accounts = [text for text in denied if text.kind == "AccountId" or text.member == "OwningAccount"]
    assert denied == accounts


@pytest.mark.parametrize("form", NAMING)
def test_an_endpoint_that_a_key_may_not_act_on_is_refused_in_every_member(
    texts: list[Text], form: str
) -> None:
    forbidden, allowed = (form.format(account=OURS, name=name) for name in ("test-1", "allowed-1"))
    passed = [
        text
        for text in texts
        if not text.is_free and not refused(check_endpoints, KEY, "a:B", named(text, forbidden))
    ]
    assert passed == []
    denied = [text for text in texts if refused(check_endpoints, KEY, "a:B", named(text, allowed))]
    assert {text.kind for text in denied} <= {"EndpointName"}  # the form is no name there


def test_an_endpoint_s_name_is_checked_in_every_member_for_one(texts: list[Text]) -> None:
    members = [text for text in texts if text.kind == "EndpointName" or text.member == "EndpointName"]
    assert {"EndpointInput", "BatchTransformInput"} & {part for text in members for part in text.path}
    for text in members:
        assert refused(check_endpoints, KEY, "a:B", named(text, "test-1")), text
        assert not refused(check_endpoints, KEY, "a:B", named(text, "Allowed-1")), text


def test_every_account_that_is_named_is_the_caller_s(texts: list[Text]) -> None:
    members = [text for text in texts if re.search("account", text.member + text.kind, re.IGNORECASE)]
    assert {text.member for text in members} == {"AccountId", "OwningAccount", "accountIdentifiers"}
    for text in members:
        assert refused(check_account, CALLER, "a:B", named(text, THEIRS)), text
        assert not refused(check_account, CALLER, "a:B", named(text, OURS)), text


def test_every_dimension_of_a_metric_that_is_an_endpoint_is_checked(texts: list[Text]) -> None:
    dimensions = [text for text in texts if text.member == "Value" and "Dimensions" in text.path]
    assert len(dimensions) >= 12
    for text in dimensions:
        request = text.request("test-1")
        above: Any = request
        for part in text.path[:-1]:
            above = above[0] if part == "[]" else above[_key(part)]
        above["Name"] = "EndpointName"
        references = text.service.references(text.operation, request)
        assert references.endpoints == ("test-1",), text


def test_what_is_not_checked_cannot_be_a_reference(texts: list[Text]) -> None:
    """Free texts are those whose members and patterns say neither an ARN nor a name of something."""
    looks = re.compile(
        "arn|topic|bucket|role|uri|url|endpointname|modelname|alarmname$|configname|identifier", re.IGNORECASE
    )
    wrong = [
        text
        for text in texts
        if text.is_free and (looks.search(text.member) or looks.search(text.kind) or "arn:" in text.pattern)
    ]
    assert wrong == []
    assert {text.member for text in texts if text.is_free} | {
        text.kind for text in texts if text.is_free
    } >= FREE_TEXT


def test_what_aws_offers_to_everyone_and_services_that_the_host_lacks_are_not_refused(
    texts: list[Text],
) -> None:
    for arn in (
        f"arn:aws:iam::{THEIRS}:role/models",
        f"arn:aws:sagemaker:{REGION}:aws:hub-content/Public/Model/m/1.0.0",
        f"arn:aws:kms:{REGION}:{THEIRS}:key/k",
        "arn:aws:s3:::models",
        "arn:aws:sns",
        "an arn:aws:sns:us-east-1:222222222222:t in a text",
    ):
        for text in texts:
            if text.kind != "AccountId" and text.member != "OwningAccount":
                assert not refused(check_account, CALLER, "a:B", named(text, arn)), (text, arn)


def test_an_operation_without_members_names_nothing() -> None:
    assert references_of(None, {}).arns == ()


@pytest.mark.parametrize(
    ("service", "operation", "document", "endpoints"),
    [
        ("sagemaker", "ListTags", {"ResourceArn": "arn:aws:sagemaker:r:1:endpoint-config/c"}, ()),
        ("sagemaker", "ListTags", {"ResourceArn": "arn:aws:sagemaker:r:1:model/endpoint"}, ()),
        (
            "sagemaker",
            "CreateModel",
            {"PrimaryContainer": {"ModelDataUrl": "s3://b/endpoint/e/m.tar.gz"}},
            (),
        ),
        ("logs", "DescribeLogGroups", {"logGroupNamePrefix": "/aws/sagemaker/Endpoints/a"}, ()),
        ("logs", "GetLogEvents", {"logGroupName": "/aws/sagemaker/TransformJobs"}, ()),
        (
            "application-autoscaling",
            "DescribeScalableTargets",
            {"ResourceIds": ["endpoint/e/variant/v", "table/t", "endpoint/f/variant/v"]},
            ("e", "f"),
        ),
        ("cloudwatch", "ListMetrics", {"Dimensions": [{"Name": "EndpointName"}]}, ()),
        ("cloudwatch", "ListMetrics", {"Dimensions": [{"Name": "VariantName", "Value": "v"}]}, ()),
        ("cloudwatch", "GetMetricData", {"MetricDataQueries": [{"Id": "a", "Expression": "1"}]}, ()),
        ("sns", "Publish", {"Message": "arn:aws:sagemaker:r:1:endpoint/e"}, ()),
    ],
)
def test_endpoints_that_a_request_names(
    texts: list[Text],
    service: str,
    operation: str,
    document: Mapping[str, Any],
    endpoints: tuple[str, ...],
) -> None:
    found = next(text.service for text in texts if text.service.name == service)
    assert found.references(operation, document).endpoints == endpoints
