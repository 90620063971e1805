"""Scaling policies: putting, describing and deleting them, and their alarms."""

from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from tests.hosting.scaling.serving import INVOCATIONS, NOON, RESOURCE, SCOPE, TARGET, Scaled

NAMESPACE = {"ServiceNamespace": "sagemaker"}
PREDEFINED = (
    "scalable dimension sagemaker:variant:DesiredInstanceCount; it has SageMakerVariantInvocationsPerInstance and "
    "SageMakerVariantConcurrentRequestsPerModelHighResolution"
)
UTILIZATION = {
    "MetricName": "CPUUtilization",
    "Namespace": "/aws/sagemaker/Endpoints",
    "Dimensions": [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}],
    "Statistic": "Average",
    "Unit": "Percent",
}


@pytest.fixture(autouse=True)
def _registered(host: Scaled) -> None:
    host.register()


def describe(host: Scaled, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.client().describe_scaling_policies(**NAMESPACE, **request)[
        "ScalingPolicies"
    ]
    return found


def tracking(**config: Any) -> dict[str, Any]:
    document = {**INVOCATIONS, **config}
    return {
        **TARGET,
        "PolicyName": "p",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            name: value for name, value in document.items() if value is not None
        },
    }


def customized(**spec: Any) -> dict[str, Any]:
    return tracking(PredefinedMetricSpecification=None, CustomizedMetricSpecification=spec)


def stepping(*steps: dict[str, Any], **config: Any) -> dict[str, Any]:
    document = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": list(steps), **config}
    return {
        **TARGET,
        "PolicyName": "s",
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": {
            name: value for name, value in document.items() if value is not None
        },
    }


def step(low: float | None, high: float | None, adjustment: int = 1) -> dict[str, Any]:
    bounds = {"MetricIntervalLowerBound": low, "MetricIntervalUpperBound": high}
    return {
        **{name: value for name, value in bounds.items() if value is not None},
        "ScalingAdjustment": adjustment,
    }


def test_a_tracking_policy_has_two_alarms(host: Scaled) -> None:
    answer = host.client().put_scaling_policy(**tracking(ScaleInCooldown=60))
    arn = answer["PolicyARN"]
    assert arn.startswith("arn:aws:autoscaling:us-east-1:000000000000:scalingPolicy:")
    assert arn.endswith(f":resource/sagemaker/{RESOURCE}:policyName/p")
    high, low = (alarm["AlarmName"] for alarm in answer["Alarms"])
    assert high.startswith(f"TargetTracking-{RESOURCE}-AlarmHigh-")
    assert low.startswith(f"TargetTracking-{RESOURCE}-AlarmLow-")
    assert answer["Alarms"][0]["AlarmARN"] == f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{high}"
    metric = {
        "Namespace": "AWS/SageMaker",
        "MetricName": "InvocationsPerInstance",
        "Dimensions": [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}],
        "Statistic": "Sum",
        "Period": 60,
    }
    common = {
        "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {arn}.",
        "ActionsEnabled": True,
        "AlarmActions": [arn],
        **metric,
    }
    assert host.alarms.alarms[SCOPE, high].request == {
        "AlarmName": high,
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 3,
        "Threshold": 10.0,
        **common,
    }
    assert host.alarms.alarms[SCOPE, low].request == {
        "AlarmName": low,
        "ComparisonOperator": "LessThanThreshold",
        "EvaluationPeriods": 15,
        "Threshold": 9.0,
        **common,
    }
    (policy,) = describe(host)
    assert policy.pop("CreationTime").timestamp() == NOON
    assert policy == {
        "PolicyARN": arn,
        "PolicyName": "p",
        **TARGET,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {**INVOCATIONS, "ScaleInCooldown": 60},
        "Alarms": answer["Alarms"],
    }


def test_a_policy_that_never_scales_in_has_one_alarm(host: Scaled) -> None:
    (high,) = host.track(DisableScaleIn=True)
    assert host.track(DisableScaleIn=False)[0] == high
    assert len(host.alarms.alarms) == 2
    assert host.track(DisableScaleIn=True) == [high]
    assert [name for _, name in host.alarms.alarms] == [high]


def test_a_policy_that_is_put_again_keeps_its_arn_and_its_alarms(host: Scaled) -> None:
    before = host.client().put_scaling_policy(**tracking())
    after = host.client().put_scaling_policy(**tracking(TargetValue=20.0))
    assert (after["PolicyARN"], after["Alarms"]) == (before["PolicyARN"], before["Alarms"])
    thresholds = [alarm.request["Threshold"] for alarm in host.alarms.alarms.values()]
    assert thresholds == [20.0, 18.0]


def test_a_policy_that_is_deleted_takes_its_alarms_along(host: Scaled) -> None:
    host.track()
    host.track("other")
    host.client().delete_scaling_policy(**TARGET, PolicyName="p")
    assert [policy["PolicyName"] for policy in describe(host)] == ["other"]
    assert len(host.alarms.alarms) == 2


def test_a_metric_of_ones_own(host: Scaled) -> None:
    host.client().put_scaling_policy(**customized(**UTILIZATION))
    high, _ = (alarm.request for alarm in host.alarms.alarms.values())
    assert {name: high[name] for name in UTILIZATION} == UTILIZATION
    assert high["Period"] == 60


def test_metric_math(host: Scaled) -> None:
    metric = {"Namespace": "x", "MetricName": "queue", "Dimensions": [{"Name": "a", "Value": "b"}]}
    queries = [
        {"Id": "m1", "MetricStat": {"Metric": metric, "Stat": "Sum"}, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 / 5", "Label": "share", "ReturnData": True},
    ]
    host.client().put_scaling_policy(**customized(Metrics=queries))
    high, _ = (alarm.request for alarm in host.alarms.alarms.values())
    assert high["Metrics"] == [
        {"Id": "m1", "MetricStat": {"Metric": metric, "Stat": "Sum", "Period": 60}, "ReturnData": False},
        queries[1],
    ]
    assert "MetricName" not in high
    config = describe(host)[0]["TargetTrackingScalingPolicyConfiguration"]
    assert config["CustomizedMetricSpecification"]["Metrics"] == queries


def test_concurrent_requests(host: Scaled) -> None:
    host.track(
        PredefinedMetricSpecification={
            "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        }
    )
    high, _ = (alarm.request for alarm in host.alarms.alarms.values())
    assert (high["MetricName"], high["Statistic"]) == ("ConcurrentRequestsPerModel", "Maximum")


def test_a_step_policy_is_described_with_the_alarms_that_have_it_as_an_action(host: Scaled) -> None:
    arn = host.step(Cooldown=60, MetricAggregationType="Maximum")
    (policy,) = describe(host)
    assert policy["PolicyARN"] == arn
    assert policy["StepScalingPolicyConfiguration"] == {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
        "Cooldown": 60,
        "MetricAggregationType": "Maximum",
    }
    assert policy["Alarms"] == [
        {
            "AlarmName": "user-alarm",
            "AlarmARN": "arn:aws:cloudwatch:us-east-1:000000000000:alarm:user-alarm",
        }
    ]
    host.client().delete_scaling_policy(**TARGET, PolicyName="s")
    assert len(host.alarms.alarms) == 1  # it is the user's


def test_what_an_update_of_a_step_policy_does_not_say_stays(host: Scaled) -> None:
    host.step(Cooldown=60)
    request = {**stepping(), "StepScalingPolicyConfiguration": {"Cooldown": 30}}
    del request["PolicyType"]
    host.client().put_scaling_policy(**request)
    config = describe(host)[0]["StepScalingPolicyConfiguration"]
    assert (config["Cooldown"], len(config["StepAdjustments"])) == (30, 1)


def test_policies_are_listed_page_by_page(host: Scaled) -> None:
    for number in range(12):
        host.step(f"s{number:02}")
    pages = host.client().get_paginator("describe_scaling_policies").paginate(**NAMESPACE)
    found = [[policy["PolicyName"] for policy in page["ScalingPolicies"]] for page in pages]
    assert [len(page) for page in found] == [10, 2]
    assert found[1] == ["s10", "s11"]
    assert [each["PolicyName"] for each in describe(host, PolicyNames=["s03", "none"])] == ["s03"]
    assert describe(host, ResourceId="endpoint/f/variant/A") == []
    assert host.refused("describe_scaling_policies", **NAMESPACE, MaxResults=11) == (
        "ValidationException",
        "MaxResults is 11; it must be from 1 to 10",
    )


def test_policies_and_their_alarms_are_there_after_a_restart(host: Scaled) -> None:
    host.track()
    host.step()
    before = describe(host)
    # the host may end before the alarms of a policy have been made
    lost = [key for key in host.alarms.alarms if "AlarmLow" in key[1]]
    for key in lost:
        del host.alarms.alarms[key]
    host.restart()
    assert describe(host) == before
    assert set(lost) < set(host.alarms.alarms)


def test_a_policy_of_which_the_alarms_cannot_be_made_is_not_there(host: Scaled) -> None:
    host.alarms.refusal = ApiError("ValidationError", "The metric is none")
    assert host.refused("put_scaling_policy", **tracking()) == (
        "ValidationException",
        "the policy's alarm cannot be made: The metric is none",
    )
    host.alarms.refusal = ApiError("LimitExceeded", "there are too many alarms")
    assert host.refused("put_scaling_policy", **tracking())[0] == "LimitExceededException"
    assert describe(host) == []
    host.restart()
    assert describe(host) == []


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({**tracking(), "PolicyType": None}, "PolicyType is required when a new scaling policy is made"),
        (
            {**tracking(), "PolicyType": "PredictiveScaling"},
            "PolicyType PredictiveScaling is not available for SageMaker endpoint variants",
        ),
        ({**tracking(), "PolicyType": "SimpleScaling"}, "Member must satisfy enum value set"),
        (
            {**tracking(), "PolicyType": "StepScaling"},
            "TargetTrackingScalingPolicyConfiguration is not for policies of type StepScaling",
        ),
        (
            {**TARGET, "PolicyName": "p", "PolicyType": "StepScaling"},
            "StepScalingPolicyConfiguration is required for a policy of type StepScaling",
        ),
        ({**tracking(), "PolicyName": "p\n"}, "Member must satisfy regular expression pattern"),
        (tracking(TargetValue=None), "Member must not be null"),
        (tracking(TargetValue=0.0), "TargetValue is 0.0; it must be greater than 0, from 2^-360 to 2^360"),
        (tracking(TargetValue=-5.0), "TargetValue is -5.0; it must be greater than 0"),
        (tracking(TargetValue=1e300), "TargetValue is 1e+300; it must be greater than 0"),
        (tracking(ScaleInCooldown=-1), "ScaleInCooldown is -1; it must be 0 or more"),
        (tracking(ScaleOutCooldown=-1), "ScaleOutCooldown is -1; it must be 0 or more"),
        (
            tracking(PredefinedMetricSpecification=None),
            "a target tracking policy needs either PredefinedMetricSpecification or CustomizedMetricSpecification",
        ),
        (
            tracking(CustomizedMetricSpecification=UTILIZATION),
            "a target tracking policy needs either PredefinedMetricSpecification or CustomizedMetricSpecification",
        ),
        (
            tracking(
                PredefinedMetricSpecification={
                    "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
                }
            ),
            f"metric type SageMakerInferenceComponentInvocationsPerCopy is not available for {PREDEFINED}",
        ),
        (
            tracking(
                PredefinedMetricSpecification={
                    "PredefinedMetricType": "SageMakerVariantProvisionedConcurrencyUtilization"
                }
            ),
            "The predefined metric type SageMakerVariantProvisionedConcurrencyUtilization is not available",
        ),
        (
            tracking(
                PredefinedMetricSpecification={
                    "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance",
                    "ResourceLabel": "x",
                }
            ),
            "ResourceLabel is for the predefined metric type ALBRequestCountPerTarget only",
        ),
        (
            customized(MetricName="x", Namespace="y"),
            "CustomizedMetricSpecification needs Statistic, or Metrics",
        ),
        (customized(), "CustomizedMetricSpecification needs MetricName, or Metrics"),
        (customized(**{**UTILIZATION, "Statistic": "p99"}), "Member must satisfy enum value set"),
        (customized(Metrics=[]), "CustomizedMetricSpecification: Metrics is empty"),
        (
            customized(Metrics=[{"Id": "a", "Expression": "1"}], Unit="Percent"),
            "CustomizedMetricSpecification has Metrics, so that Unit has no place in it",
        ),
        (customized(Metrics=[{"Id": "a"}]), "Metrics: 'a' needs either Expression or MetricStat"),
        (
            customized(Metrics=[{"Id": "a", "Expression": "1"}, {"Id": "b", "Expression": "2"}]),
            "Metrics: exactly one of them returns data, and here 2 (a, b); set ReturnData of the others to false",
        ),
        (
            customized(Metrics=[{"Id": "a", "Expression": "1", "ReturnData": False}]),
            "Metrics: exactly one of them returns data, and here none",
        ),
        (stepping(), "a step scaling policy needs at least one of StepAdjustments"),
        (stepping(step(0, None), AdjustmentType=None), "a step scaling policy needs AdjustmentType"),
        (stepping(step(0, None), AdjustmentType="Double"), "Member must satisfy enum value set"),
        (stepping(step(0, None), Cooldown=-1), "Cooldown is -1; it must be 0 or more"),
        (stepping(step(0, None), MinAdjustmentMagnitude=-1), "MinAdjustmentMagnitude is -1"),
        (
            stepping(step(None, None)),
            "StepAdjustments: the lower and the upper bound cannot both be null in one step adjustment",
        ),
        (
            stepping(step(5, 5)),
            "StepAdjustments: the upper bound 5.0 must be greater than the lower bound 5.0",
        ),
        (
            stepping(step(0, 10), step(5, None)),
            "StepAdjustments: two intervals overlap from 5.0 to 10.0",
        ),
        (
            stepping(step(20, None), step(0, 10)),
            "StepAdjustments: there is a gap from 10.0 to 20.0",
        ),
        (
            stepping(step(0, None), step(5, None)),
            "StepAdjustments: at most one step adjustment can have a null upper bound",
        ),
        (
            stepping(step(None, 0), step(None, -5)),
            "StepAdjustments: at most one step adjustment can have a null lower bound",
        ),
        (
            stepping(step(0, 10)),
            "StepAdjustments: with a positive upper bound, one step adjustment must have a null upper bound",
        ),
        (
            stepping(step(-10, 0)),
            "StepAdjustments: with a negative lower bound, one step adjustment must have a null lower bound",
        ),
        (
            stepping(step(0, None, -1), AdjustmentType="ExactCapacity"),
            "StepAdjustments: ScalingAdjustment is -1, and an exact capacity is 0 or more",
        ),
    ],
)
def test_policies_that_are_refused(host: Scaled, request_: dict[str, Any], text: str) -> None:
    request_ = {name: value for name, value in request_.items() if value is not None}
    code, message = host.refused("put_scaling_policy", **request_)
    assert code == "ValidationException"
    assert text in message
    assert describe(host) == []
    assert host.alarms.alarms == {}


def test_the_type_of_a_policy_cannot_be_changed(host: Scaled) -> None:
    host.track("s")
    code, text = host.refused("put_scaling_policy", **stepping(step(0, None)))
    assert code == "ValidationException"
    assert (
        text == "the policy 's' is of type TargetTrackingScaling, which cannot be changed; delete it before"
    )


def test_too_many_steps_and_policies_are_refused(host: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step(number, number + 1) for number in range(20)]
    assert host.refused("put_scaling_policy", **stepping(*steps, step(20, None))) == (
        "LimitExceededException",
        "a step scaling policy has at most 20 step adjustments, got 21",
    )
    monkeypatch.setattr("halimede.hosting.scaling.policy_operations.MAX_POLICIES", 1)
    host.track()
    host.track(TargetValue=5.0)
    assert host.refused("put_scaling_policy", **stepping(step(0, None))) == (
        "LimitExceededException",
        "a scalable target has at most 1 scaling policies",
    )


def test_policies_of_what_is_not_there(host: Scaled) -> None:
    host.client().deregister_scalable_target(**TARGET)
    where = (
        "service namespace: sagemaker, resource ID: endpoint/e/variant/A, scalable dimension: "
        "sagemaker:variant:DesiredInstanceCount"
    )
    assert host.refused("put_scaling_policy", **tracking()) == (
        "ObjectNotFoundException",
        f"No scalable target registered for {where}",
    )
    assert host.refused("delete_scaling_policy", **TARGET, PolicyName="p") == (
        "ObjectNotFoundException",
        f"No scaling policy found for {where}, policy name: p",
    )
    request = {**tracking(), "ServiceNamespace": "dynamodb"}
    assert "Unsupported service namespace" in host.refused("put_scaling_policy", **request)[1]
