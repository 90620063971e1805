"""What deployment policies ask for, and which are refused."""

from typing import Any

import pytest

from halimede.hosting.control.deployments.checks import check_alarms, check_config, check_fleet
from halimede.hosting.control.deployments.policy import Policy, Strategy
from halimede.hosting.errors import ApiError
from tests.hosting.control.fakes import refusal


def percent(value: int) -> dict[str, Any]:
    return {"Type": "CAPACITY_PERCENT", "Value": value}


def instances(value: int) -> dict[str, Any]:
    return {"Type": "INSTANCE_COUNT", "Value": value}


def blue_green(
    kind: str, wait_s: int = 0, further: dict[str, Any] | None = None, **sizes: Any
) -> dict[str, Any]:
    routing = {"Type": kind, "WaitIntervalInSeconds": wait_s, **sizes}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, **(further or {})}}


def rolling(size: dict[str, Any], wait_s: int = 0, **further: Any) -> dict[str, Any]:
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": wait_s, **further}}


@pytest.mark.parametrize(
    ("config", "counts", "shares"),
    [
        (None, {"A": 1}, [1.0]),
        ({}, {"A": 3}, [1.0]),
        (blue_green("ALL_AT_ONCE"), {"A": 3}, [1.0]),
        (blue_green("CANARY", CanarySize=percent(10)), {"A": 1}, [0.1, 1.0]),
        (blue_green("CANARY", CanarySize=instances(1)), {"A": 4}, [0.25, 1.0]),
        (blue_green("CANARY", CanarySize=instances(1)), {"A": 2, "B": 3}, [0.4, 1.0]),
        (blue_green("LINEAR", LinearStepSize=percent(20)), {"A": 1}, [0.2, 0.4, 0.6, 0.8, 1.0]),
        (blue_green("LINEAR", LinearStepSize=percent(33)), {"A": 1}, [0.33, 0.66, 1.0]),
        (blue_green("LINEAR", LinearStepSize=percent(40)), {"A": 1}, [0.4, 0.8, 1.0]),
        (blue_green("LINEAR", LinearStepSize=instances(1)), {"A": 3}, [1 / 3, 2 / 3, 1.0]),
        (rolling(percent(50)), {"A": 4}, [0.5, 1.0]),
        (rolling(percent(5)), {"A": 4}, [0.25, 0.5, 0.75, 1.0]),
        (rolling(percent(50)), {"A": 1}, [1.0]),
        (rolling(instances(2)), {"A": 4, "B": 6}, [0.4, 0.7, 1.0]),
    ],
)
def test_requests_are_shifted_in_these_steps(
    config: dict[str, Any] | None, counts: dict[str, int], shares: list[float]
) -> None:
    assert Policy.of(config).shares(counts) == pytest.approx(shares)


def test_a_policy_holds_all_that_was_configured() -> None:
    further = {"TerminationWaitInSeconds": 5, "MaximumExecutionTimeoutInSeconds": 700}
    config = blue_green("LINEAR", 30, further, LinearStepSize=percent(25))
    policy = Policy.of(
        {**config, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}, {"AlarmName": "b"}]}}
    )
    assert (policy.strategy, policy.wait_s, policy.termination_wait_s) == (Strategy.LINEAR, 30, 5)
    assert (policy.timeout_s, policy.alarms) == (700, ("a", "b"))
    assert policy.waits_s({"A": 1}) == 4 * 30 + 5


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {**blue_green("ALL_AT_ONCE"), **rolling(percent(10))},
            "DeploymentConfig: it has BlueGreenUpdatePolicy and RollingUpdatePolicy; use one of them",
        ),
        (blue_green("CANARY"), "traffic routing of type CANARY needs CanarySize"),
        (
            blue_green("LINEAR", CanarySize=percent(10)),
            "CanarySize is not for traffic routing of type LINEAR",
        ),
        (blue_green("LINEAR"), "traffic routing of type LINEAR needs LinearStepSize"),
        (
            blue_green("ALL_AT_ONCE", LinearStepSize=percent(10)),
            "LinearStepSize is not for traffic routing",
        ),
        (
            blue_green("CANARY", CanarySize=percent(51)),
            "CanarySize is 51 % of the fleet; it must be 1 to 50 %",
        ),
        (
            blue_green("LINEAR", LinearStepSize=percent(9)),
            "LinearStepSize is 9 % of the fleet; it must be 10 to 50 %",
        ),
        (rolling(percent(4)), "MaximumBatchSize is 4 % of the fleet; it must be 5 to 50 %"),
        (
            rolling(percent(50), RollbackMaximumBatchSize=percent(101)),
            "RollbackMaximumBatchSize is 101 % of the fleet",
        ),
        (
            {"AutoRollbackConfiguration": {"Alarms": [{}]}},
            "an alarm of AutoRollbackConfiguration has no AlarmName",
        ),
        ({"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}] * 2}}, "has the alarm 'a' twice"),
    ],
)
def test_policies_that_contradict_themselves_are_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_config(config)
    assert raised.value.code == "ValidationException"
    assert raised.value.message.startswith("DeploymentConfig: ")
    assert text in raised.value.message


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (blue_green("CANARY", CanarySize=instances(3)), "CanarySize is 3 instances, and variant 'A' has 4"),
        (
            rolling(instances(3)),
            "MaximumBatchSize is 3 instances, and variant 'A' has 4; it must be 5 to 50 % of them",
        ),
        (
            rolling(instances(1), RollbackMaximumBatchSize=instances(5)),
            "RollbackMaximumBatchSize is 5 instances",
        ),
        (
            blue_green("LINEAR", 300, {"MaximumExecutionTimeoutInSeconds": 600}, LinearStepSize=percent(50)),
            "MaximumExecutionTimeoutInSeconds is 600, and the deployment waits 600 s: WaitIntervalInSeconds 2 times",
        ),
        (
            blue_green(
                "ALL_AT_ONCE", 300, {"TerminationWaitInSeconds": 300, "MaximumExecutionTimeoutInSeconds": 600}
            ),
            "the deployment waits 600 s",
        ),
    ],
)
def test_policies_that_do_not_go_with_the_fleet_are_refused(config: dict[str, Any], text: str) -> None:
    check_config(config)
    with pytest.raises(ApiError) as raised:
        check_fleet(config, {"A": 4})
    assert text in raised.value.message


@pytest.mark.parametrize(
    "config",
    [
        {},
        blue_green("ALL_AT_ONCE", 3600, {"TerminationWaitInSeconds": 3600}),
        blue_green("CANARY", CanarySize=instances(2)),
        blue_green("CANARY", CanarySize=percent(50)),
        blue_green("LINEAR", 100, {"MaximumExecutionTimeoutInSeconds": 601}, LinearStepSize=percent(20)),
        rolling(instances(2), RollbackMaximumBatchSize=percent(100)),
    ],
)
def test_policies_within_aws_limits_pass(config: dict[str, Any]) -> None:
    assert refusal(check_config, config) == ""
    assert refusal(check_fleet, config, {"A": 4}) == ""


def test_alarms_that_do_not_exist_or_are_in_alarm_are_refused() -> None:
    check_alarms([], [])
    with pytest.raises(ApiError, match="there is no CloudWatch alarm 'a' in this account and region"):
        check_alarms(["b", "a"], [])
    with pytest.raises(ApiError, match="the CloudWatch alarm 'c' is in the state ALARM"):
        check_alarms([], ["c"])
