"""Scalable targets and their tags."""

from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from tests.hosting.scaling.serving import NOON, RESOURCE, TARGET, Scaled

NAMESPACE = {"ServiceNamespace": "sagemaker"}
UNSUPPORTED = "Unsupported service namespace, resource type or scalable dimension: "
DIMENSION = TARGET["ScalableDimension"]
COPIES = "sagemaker:inference-component:DesiredCopyCount"


def describe(host: Scaled, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.client().describe_scalable_targets(**NAMESPACE, **request)[
        "ScalableTargets"
    ]
    return found


def test_a_target_is_described_as_it_was_registered(host: Scaled) -> None:
    arn = host.register(2, 5, Tags={"team": "a"})
    assert arn.startswith("arn:aws:application-autoscaling:us-east-1:000000000000:scalable-target/")
    (target,) = describe(host)
    assert target.pop("CreationTime").timestamp() == NOON
    assert target == {
        **TARGET,
        "MinCapacity": 2,
        "MaxCapacity": 5,
        "RoleARN": "arn:aws:iam::000000000000:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
        "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint",
        "SuspendedState": {
            "DynamicScalingInSuspended": False,
            "DynamicScalingOutSuspended": False,
            "ScheduledScalingSuspended": False,
        },
        "ScalableTargetARN": arn,
    }


def test_what_an_update_does_not_say_stays(host: Scaled) -> None:
    arn = host.register(1, 5)
    client = host.client()
    again = client.register_scalable_target(**TARGET, SuspendedState={"DynamicScalingInSuspended": True})
    assert again["ScalableTargetARN"] == arn
    client.register_scalable_target(**TARGET, MaxCapacity=7, RoleARN="arn:aws:iam::1:role/r")
    (target,) = describe(host)
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 7)
    assert target["RoleARN"] == "arn:aws:iam::1:role/r"
    assert target["SuspendedState"] == {
        "DynamicScalingInSuspended": True,
        "DynamicScalingOutSuspended": False,
        "ScheduledScalingSuspended": False,
    }


def test_bounds_bring_the_number_of_instances_within_them(host: Scaled) -> None:
    host.register(3, 5)
    (activity,) = host.activities()
    assert activity["Cause"] == "minimum capacity was set to 3"
    assert activity["Description"] == "Setting desired instance count to 3."
    assert activity["StatusCode"] == "InProgress"
    assert (
        activity["StatusMessage"]
        == "Successfully set desired instance count to 3. Waiting for change to be fulfilled by sagemaker."
    )
    assert "EndTime" not in activity
    host.settle()
    (activity,) = host.activities()
    assert activity["StatusCode"] == "Successful"
    assert (
        activity["StatusMessage"]
        == "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker."
    )
    assert activity["EndTime"].timestamp() == NOON + 1
    host.register(1, 2)
    assert host.activities()[0]["Cause"] == "maximum capacity was set to 2"
    host.settle()
    assert host.variant.set_to == [3, 2]


def test_bounds_are_applied_once_the_endpoint_is_in_service(host: Scaled) -> None:
    host.variant.settled = False
    host.register(3, 5)
    host.tick()
    assert host.activities() == []
    host.settle()
    assert host.statuses() == [("Setting desired instance count to 3.", "InProgress")]


def test_bounds_that_cannot_be_applied_are_applied_later(host: Scaled) -> None:
    host.variant.refusal = ApiError("ResourceLimitExceeded", "no more instances of ml.local.cpu fit")
    host.register(3, 5)
    (activity,) = host.activities()
    assert activity["StatusCode"] == "Failed"
    assert activity["StatusMessage"] == (
        "Failed to set desired instance count to 3. Reason: no more instances of ml.local.cpu fit "
        "(Service: AmazonSageMaker; Status Code: 400; Error Code: ResourceLimitExceeded)"
    )
    host.tick(30)
    assert len(host.activities()) == 1
    host.variant.refusal = None
    host.tick(30)
    host.settle()
    assert host.statuses()[0] == ("Setting desired instance count to 3.", "Successful")
    host.tick(600)
    assert len(host.activities()) == 2


def test_targets_are_listed_page_by_page(host: Scaled) -> None:
    names = [f"e{number:02}" for number in range(7)]
    for name in names:
        host.add(name, "A")
        host.register(ResourceId=f"endpoint/{name}/variant/A")
    client = host.client()
    pages = client.get_paginator("describe_scalable_targets").paginate(
        **NAMESPACE, PaginationConfig={"PageSize": 3}
    )
    found = [page["ScalableTargets"] for page in pages]
    assert [len(page) for page in found] == [3, 3, 1]
    resources = [target["ResourceId"] for page in found for target in page]
    assert resources == [f"endpoint/{name}/variant/A" for name in names]
    some = describe(host, ResourceIds=["endpoint/e03/variant/A", "endpoint/none/variant/A"])
    assert [target["ResourceId"] for target in some] == ["endpoint/e03/variant/A"]
    assert client.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"] == []


def test_targets_are_those_of_an_account_and_region(host: Scaled) -> None:
    host.register()
    client = host.client(region_name="eu-west-1")
    assert client.describe_scalable_targets(**NAMESPACE)["ScalableTargets"] == []
    host.add("e", "A", Scope(region="eu-west-1"))
    arn = client.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=2)["ScalableTargetARN"]
    assert ":eu-west-1:" in arn
    assert describe(host)[0]["MaxCapacity"] == 10


def test_a_target_that_is_deregistered_takes_its_parts_along(host: Scaled) -> None:
    arn = host.register(Tags={"a": "b"})
    host.track()
    client = host.client()
    client.put_scheduled_action(
        **TARGET, ScheduledActionName="x", Schedule="rate(1 day)", ScalableTargetAction={"MinCapacity": 1}
    )
    client.deregister_scalable_target(**TARGET)
    assert describe(host) == []
    assert client.describe_scaling_policies(**NAMESPACE)["ScalingPolicies"] == []
    assert client.describe_scheduled_actions(**NAMESPACE)["ScheduledActions"] == []
    assert host.alarms.alarms == {}
    host.restart()
    assert describe(host) == []
    assert host.register() != arn
    assert client.describe_scaling_policies(**NAMESPACE)["ScalingPolicies"] == []


def test_alarms_that_others_need_keep_a_target(host: Scaled) -> None:
    host.register()
    host.track()
    host.alarms.deletion = ApiError(
        "ValidationError", "Cannot delete x as there are composite alarm(s) depending on it."
    )
    code, text = host.refused("deregister_scalable_target", **TARGET)
    assert code == "FailedResourceAccessException"
    assert text.endswith("Cannot delete x as there are composite alarm(s) depending on it.")
    assert len(describe(host)) == 1


def test_tags(host: Scaled) -> None:
    arn = host.register(Tags={"team": "a"})
    client = host.client()
    client.tag_resource(ResourceARN=arn, Tags={"stage": "test", "team": "b"})
    assert client.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"stage": "test", "team": "b"}
    client.untag_resource(ResourceARN=arn, TagKeys=["team", "none"])
    host.restart()
    assert client.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"stage": "test"}
    code, text = host.refused("register_scalable_target", **TARGET, Tags={"x": "y"})
    assert code == "ValidationException"
    assert text == (
        "The scalable target that you tried to tag already exists. To update tags on an existing scalable target, use "
        "the TagResource API."
    )


def test_tags_that_are_refused(host: Scaled) -> None:
    arn = host.register()
    assert host.refused("tag_resource", ResourceARN=arn, Tags={"aws:x": "y"})[0] == "ValidationException"
    many = {f"key{number}": "" for number in range(51)}
    assert host.refused("tag_resource", ResourceARN=arn, Tags=many)[0] == "TooManyTagsException"
    other = f"{arn[:-4]}0000"
    for operation, further in (
        ("tag_resource", {"Tags": {}}),
        ("untag_resource", {"TagKeys": []}),
        ("list_tags_for_resource", {}),
    ):
        assert host.refused(operation, ResourceARN=other, **further)[0] == "ResourceNotFoundException"
    foreign = arn.replace(":000000000000:", ":111111111111:")
    assert host.refused("list_tags_for_resource", ResourceARN=foreign)[0] == "AccessDeniedException"


@pytest.mark.parametrize(
    ("further", "text"),
    [
        ({"MinCapacity": None}, "MinCapacity is required when a new scalable target is registered"),
        ({"MaxCapacity": None}, "MaxCapacity is required when a new scalable target is registered"),
        ({"MinCapacity": 0}, "MinCapacity is 0; a variant of a real-time endpoint has 1 instance or more"),
        ({"MinCapacity": -1}, "MinCapacity is -1;"),
        (
            {"MinCapacity": 5, "MaxCapacity": 4},
            "Maximum capacity cannot be less than minimum capacity: MaxCapacity is 4, and MinCapacity is 5",
        ),
        (
            {"ResourceId": "endpoint/none/variant/A"},
            'Could not find variant "A" of endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/none".',
        ),
        ({"ResourceId": "endpoint/e/variant/B"}, 'Could not find variant "B" of endpoint'),
        (
            {"ResourceId": "endpoint/e"},
            f"{UNSUPPORTED}the resource ID of a variant is endpoint/NAME/variant/NAME, got 'endpoint/e'",
        ),
        ({"ResourceId": "endpoint/e/variant/A/"}, "Unsupported service namespace"),
        ({"ResourceId": "inference-component/x"}, "Unsupported service namespace"),
        (
            {"ServiceNamespace": "ecs"},
            f"{UNSUPPORTED}this host has the namespace sagemaker, got 'ecs'",
        ),
        (
            {"ScalableDimension": COPIES},
            f"{UNSUPPORTED}this host has the dimension {DIMENSION}, got '{COPIES}'",
        ),
        ({"ServiceNamespace": "s3"}, "Member must satisfy enum value set: [ecs,"),
        ({"ResourceId": ""}, "Member must have length greater than or equal to 1"),
        (
            {"ResourceId": None},
            "Value null at 'resourceId' failed to satisfy constraint: Member must not be null",
        ),
        ({"Tags": {"aws:a": "b"}}, "aws: prefixed tag key names are not allowed for external use: 'aws:a'"),
    ],
)
def test_registrations_that_are_refused(host: Scaled, further: dict[str, Any], text: str) -> None:
    request = {**TARGET, "MinCapacity": 1, "MaxCapacity": 5, **further}
    request = {name: value for name, value in request.items() if value is not None}
    code, message = host.refused("register_scalable_target", **request)
    assert code == "ValidationException"
    assert text in message
    assert describe(host) == []


def test_a_request_of_wrong_types_is_refused(host: Scaled) -> None:
    assert (
        host.refused("register_scalable_target", **TARGET, MinCapacity=1.5, MaxCapacity=2)[0]
        == "SerializationException"
    )
    code, _ = host.refused("register_scalable_target", **TARGET, MinCapacity=1, MaxCapacity=2**40)
    assert code == "SerializationException"


def test_too_many_targets_are_refused(host: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.hosting.scaling.target_operations.MAX_TARGETS", 1)
    host.register()
    host.register(2, 5)
    host.add("f", "A")
    code, text = host.refused(
        "register_scalable_target",
        **{**TARGET, "ResourceId": "endpoint/f/variant/A"},
        MinCapacity=1,
        MaxCapacity=2,
    )
    assert (code, text) == (
        "LimitExceededException",
        "an account has at most 1 scalable targets of sagemaker",
    )


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            {"ScalableDimension": TARGET["ScalableDimension"]},
            "ValidationException",
            "If you specify a scalable dimension, you must also specify a resource ID",
        ),
        ({"MaxResults": 0}, "ValidationException", "MaxResults is 0; it must be from 1 to 50"),
        ({"MaxResults": 51}, "ValidationException", "MaxResults is 51; it must be from 1 to 50"),
        ({"NextToken": "x"}, "InvalidNextTokenException", "The specified nextToken is invalid: 'x'"),
    ],
)
@pytest.mark.parametrize(
    "operation", ["describe_scalable_targets", "describe_scaling_activities", "describe_scheduled_actions"]
)
def test_lists_that_are_refused(
    host: Scaled, operation: str, request_: dict[str, Any], code: str, text: str
) -> None:
    assert host.refused(operation, **NAMESPACE, **request_) == (code, text)


def test_what_is_not_registered_cannot_be_deregistered(host: Scaled) -> None:
    code, text = host.refused("deregister_scalable_target", **TARGET)
    assert code == "ObjectNotFoundException"
    assert text == (
        f"No scalable target found for service namespace: sagemaker, resource ID: {RESOURCE}, scalable dimension: "
        f"sagemaker:variant:DesiredInstanceCount"
    )


def test_predictive_scaling_is_refused_by_name(host: Scaled) -> None:
    code, text = host.refused(
        "get_predictive_scaling_forecast", **TARGET, PolicyName="p", StartTime=NOON, EndTime=NOON + 60
    )
    assert code == "UnknownOperationException"
    assert text.startswith("GetPredictiveScalingForecast is not available in this version")


def test_variant_of_an_asynchronous_endpoint_may_have_no_instances(host: Scaled) -> None:
    host.variant.least = 0
    host.register(0, 2)
    [target] = describe(host)
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 2)
    host.client().put_scheduled_action(
        **TARGET,
        ScheduledActionName="night",
        Schedule="cron(0 20 * * ? *)",
        ScalableTargetAction={"MinCapacity": 0, "MaxCapacity": 0},
    )
    refusal = host.refused("register_scalable_target", **TARGET, MinCapacity=-1)
    assert refusal[1] == "MinCapacity is -1; a variant of an asynchronous endpoint has 0 instances or more"
