"""From an alarm to instances: what is done, and which activities tell of it."""

from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from tests.hosting.scaling.fakes import State
from tests.hosting.scaling.serving import NOON, RESOURCE, SCOPE, TARGET, Scaled

SET_3, SET_5 = "Setting desired instance count to 3.", "Setting desired instance count to 5."
FAILED = "Attempting to scale due to alarm triggered"


@pytest.fixture
def tracked(host: Scaled) -> Scaled:
    """A host whose variant is tracked by a policy."""
    host.register(1, 10)
    host.track()
    return host


def high(host: Scaled, *values: float) -> None:
    host.evaluate(host.high, *values)
    host.tick()


def low(host: Scaled, *values: float) -> None:
    host.evaluate(host.high, *values, state=State.OK)
    host.evaluate(host.low, *values)
    host.tick()


def test_load_scales_out_and_no_load_scales_in(tracked: Scaled) -> None:
    high(tracked, 20.0, 30.0)
    (activity,) = tracked.activities()
    assert activity.pop("ActivityId")
    assert activity.pop("StartTime").timestamp() == NOON + 1
    assert activity == {
        **TARGET,
        "Description": SET_3,
        "Cause": f"monitor alarm {tracked.high} in state ALARM triggered policy p",
        "StatusCode": "InProgress",
        "StatusMessage": "Successfully set desired instance count to 3. Waiting for change to be fulfilled by "
        "sagemaker.",
    }
    tracked.settle()
    (activity,) = tracked.activities()
    assert activity["EndTime"].timestamp() == NOON + 2
    assert (activity["StatusCode"], activity["StatusMessage"]) == (
        "Successful",
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker.",
    )
    tracked.now += 600
    low(tracked, 0.0, 0.0)
    tracked.settle()
    tracked.now += 300
    low(tracked, 0.0, 0.0)
    tracked.settle()
    assert tracked.variant.set_to == [3, 2, 1]
    assert [status for _, status in tracked.statuses()] == ["Successful"] * 3


def test_concurrent_requests_are_kept_at_the_target(host: Scaled) -> None:
    host.register()
    host.track(
        TargetValue=4.0,
        PredefinedMetricSpecification={
            "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        },
    )
    high(host, 9.0, 9.0)  # streams at one instance that none of them has ended
    host.settle()
    host.now += 600
    low(host, 1.0, 1.0)
    host.settle()
    assert host.variant.set_to == [3, 2]


def test_an_alarm_that_is_evaluated_again_does_nothing_while_the_endpoint_is_updated(tracked: Scaled) -> None:
    high(tracked, 30.0)
    high(tracked, 50.0)
    high(tracked, 50.0)
    assert tracked.statuses() == [(SET_3, "InProgress")]
    assert tracked.reasons() == ["TargetServicePutResourceAsUnscalable"]
    tracked.settle()
    high(tracked, 50.0)
    assert tracked.statuses() == [(SET_5, "InProgress"), (SET_3, "Successful")]


def test_nothing_is_done_while_somebody_else_updates_the_endpoint(tracked: Scaled) -> None:
    tracked.variant.settled = False
    high(tracked, 30.0)
    assert tracked.activities() == []
    (activity,) = tracked.activities(IncludeNotScaledActivities=True)
    assert (activity["Description"], activity["StatusCode"]) == (FAILED, "Failed")
    assert activity["NotScaledReasons"] == [{"Code": "TargetServicePutResourceAsUnscalable"}]
    tracked.settle()
    high(tracked, 30.0)
    assert tracked.variant.set_to == [3]


def test_no_room_fails_with_its_reason_and_is_tried_again(tracked: Scaled) -> None:
    tracked.variant.room = 2
    high(tracked, 30.0)
    tracked.settle()
    (activity,) = tracked.activities()
    assert activity["StatusCode"] == "Failed"
    assert activity["StatusMessage"] == (
        "Failed to set desired instance count to 3. Reason: there is no room for another instance"
    )
    tracked.variant.room = 10
    high(tracked, 30.0)
    tracked.settle()
    assert [status for _, status in tracked.statuses()] == ["Successful", "Failed"]
    assert tracked.variant.running == 3


def test_a_change_that_the_control_plane_refuses_fails(tracked: Scaled) -> None:
    tracked.variant.refusal = ApiError("ResourceLimitExceeded", "The account-level service limit is reached")
    high(tracked, 30.0)
    (activity,) = tracked.activities()
    assert activity["StatusCode"] == "Failed"
    assert activity["StatusMessage"] == (
        "Failed to set desired instance count to 3. Reason: The account-level service limit is reached (Service: "
        "AmazonSageMaker; Status Code: 400; Error Code: ResourceLimitExceeded)"
    )
    high(tracked, 30.0)
    assert len(tracked.activities()) == 2


def test_a_change_that_somebody_else_makes_overrides(tracked: Scaled) -> None:
    high(tracked, 30.0)
    tracked.variant.desired = 7
    tracked.settle()
    (activity,) = tracked.activities()
    assert (activity["StatusCode"], activity["StatusMessage"]) == (
        "Overridden",
        "Successfully set desired instance count to 3. Change was overridden: desired instance count is 7.",
    )


def test_a_variant_that_goes_leaves_its_change_unfulfilled(tracked: Scaled) -> None:
    high(tracked, 30.0)
    tracked.variant.is_gone = True
    tracked.tick()
    assert tracked.statuses() == [(SET_3, "Unfulfilled")]


def test_why_nothing_was_done(tracked: Scaled) -> None:
    tracked.variant.desired = tracked.variant.running = 10
    high(tracked, 30.0)
    (activity,) = tracked.activities(IncludeNotScaledActivities=True)
    assert activity["NotScaledReasons"] == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 10}]
    assert activity["Cause"] == f"monitor alarm {tracked.high} in state ALARM triggered policy p"
    tracked.variant.desired = tracked.variant.running = 2
    low(tracked, 8.0)
    tracked.variant.desired = tracked.variant.running = 1
    for _ in range(5):  # what is said already is not said again
        low(tracked, 1.0)
    low(tracked, 0.0)
    assert tracked.reasons() == [
        "AlreadyAtMinCapacity",
        "AlreadyAtDesiredCapacity",
        "AlreadyAtDesiredCapacity",
        "AlreadyAtMaxCapacity",
    ]
    assert tracked.activities() == []


def test_the_minimum_is_the_reason_not_to_scale_in(tracked: Scaled) -> None:
    tracked.register(2, 10)
    tracked.settle()
    low(tracked, 0.0)
    (activity, _) = tracked.activities(IncludeNotScaledActivities=True)
    assert activity["NotScaledReasons"] == [{"Code": "AlreadyAtMinCapacity", "MinCapacity": 2}]


def test_a_cooldown_begins_when_the_change_is_complete(tracked: Scaled) -> None:
    high(tracked, 30.0)
    tracked.now += 1000  # instances take their time
    tracked.settle()
    tracked.now += 290
    high(tracked, 30.0)
    assert tracked.variant.set_to == [3]
    tracked.now += 10
    high(tracked, 30.0)
    assert tracked.variant.set_to == [3, 9]


def test_a_failed_change_begins_no_cooldown(tracked: Scaled) -> None:
    tracked.variant.room = 1
    high(tracked, 30.0)
    tracked.settle()
    tracked.variant.room = 10
    high(tracked, 30.0)
    assert tracked.variant.set_to == [3, 3]


def test_cooldowns_go_by_the_pace_of_the_host(tracked: Scaled) -> None:
    tracked.pace = 1 / 60
    high(tracked, 30.0)
    tracked.settle()
    tracked.now += 4
    high(tracked, 30.0)
    assert tracked.variant.set_to == [3, 9]


def test_alarms_that_are_evaluated_together_are_decided_on_together(tracked: Scaled) -> None:
    more = tracked.track("q")[0]
    tracked.step("s", "steps", 2)
    tracked.evaluate(tracked.high, 15.0)
    tracked.evaluate(more, 45.0)
    tracked.evaluate("steps", 60.0)
    tracked.tick()
    (activity,) = tracked.activities()
    assert (activity["Description"], activity["Cause"]) == (
        SET_5,
        f"monitor alarm {more} in state ALARM triggered policy q",
    )


def test_policies_scale_in_only_together_whenever_their_alarms_are_evaluated(tracked: Scaled) -> None:
    _, other = tracked.track("q")
    tracked.variant.desired = tracked.variant.running = 9
    low(tracked, 0.0)
    tracked.tick(60)
    assert tracked.variant.set_to == []
    tracked.evaluate(other, 0.0)
    tracked.tick()
    assert tracked.variant.set_to == [5]
    tracked.settle()
    tracked.evaluate(other, 8.0, state=State.OK)
    tracked.now += 600
    low(tracked, 0.0)
    assert tracked.variant.set_to == [5]


def test_an_alarm_that_is_over_does_not_count_any_more(tracked: Scaled) -> None:
    tracked.evaluate(tracked.high, 50.0)
    tracked.evaluate(tracked.high, 5.0, state=State.OK)
    tracked.tick()
    assert tracked.variant.set_to == []


def test_step_scaling(host: Scaled) -> None:
    host.register(1, 10)
    host.step(adjustment=2)
    host.evaluate("user-alarm", 60.0)
    host.tick()
    host.tick(60)
    (activity,) = host.activities()
    assert activity["Cause"] == "monitor alarm user-alarm in state ALARM triggered policy s"
    host.settle()
    host.tick(600)
    assert host.variant.set_to == [3]  # only an evaluation makes another step
    host.evaluate("user-alarm", 60.0)
    host.tick()
    assert host.variant.set_to == [3, 5]


def test_alarms_without_values_do_nothing(host: Scaled) -> None:
    host.register(1, 10)
    host.step()
    host.evaluate("user-alarm")
    host.tick()
    assert host.activities(IncludeNotScaledActivities=True) == []


def test_an_alarm_of_a_user_cannot_pose_as_that_of_a_tracking_policy(tracked: Scaled) -> None:
    arn = tracked.client().describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"][0][
        "PolicyARN"
    ]
    tracked.loop.run(
        tracked.alarms.put(SCOPE, {"AlarmName": "mine", "AlarmActions": [arn], "Threshold": 1.0})
    )
    tracked.evaluate("mine", 1000.0)
    tracked.tick()
    assert tracked.variant.set_to == []


def test_alarms_of_policies_that_are_gone_do_nothing(tracked: Scaled) -> None:
    tracked.step()
    tracked.client().delete_scaling_policy(**TARGET, PolicyName="s")
    with pytest.raises(ApiError, match="No scaling policy found for ARN: arn:aws:autoscaling:"):
        tracked.evaluate("user-alarm", 60.0)
    tracked.tick()
    tracked.evaluate(tracked.high, 60.0)
    tracked.client().deregister_scalable_target(**TARGET)
    tracked.tick()
    assert tracked.activities() == []


def test_suspended_scaling(tracked: Scaled) -> None:
    tracked.register(SuspendedState={"DynamicScalingOutSuspended": True, "DynamicScalingInSuspended": True})
    tracked.settle()
    high(tracked, 30.0)
    tracked.variant.desired = tracked.variant.running = 4
    low(tracked, 0.0)
    assert tracked.variant.set_to == []
    tracked.register(SuspendedState={"DynamicScalingInSuspended": False})
    tracked.tick()
    low(tracked, 0.0)
    assert tracked.variant.set_to == [2]


def test_one_variant_that_fails_does_not_hold_up_others(
    tracked: Scaled, caplog: pytest.LogCaptureFixture
) -> None:
    other = tracked.add("f", "A")
    where = {**TARGET, "ResourceId": "endpoint/f/variant/A"}
    tracked.register(2, 5, **where)

    async def broken(*_: Any) -> None:
        raise RuntimeError("nobody foresaw this")

    set_count = tracked.variants.set_count
    tracked.variants.set_count = broken  # type: ignore[method-assign, assignment]
    high(tracked, 30.0)
    assert "nobody foresaw this" in caplog.text
    tracked.variants.set_count = set_count  # type: ignore[method-assign]
    tracked.settle()
    assert other.running == 2
    (failed,) = tracked.activities(ResourceId=RESOURCE)
    assert (failed["StatusCode"], failed["StatusMessage"]) == (
        "Failed",
        "Failed to set desired instance count to 3. Reason: internal error; the log of the host has the details",
    )


def test_bounds_that_change_while_a_change_goes_on_override_it(tracked: Scaled) -> None:
    high(tracked, 30.0)
    tracked.variant.settle()  # it is done, and nobody has looked yet
    tracked.register(5, 10)
    assert tracked.statuses() == [(SET_5, "InProgress"), (SET_3, "Successful")]
    tracked.settle()
    assert tracked.statuses() == [(SET_5, "Successful"), (SET_3, "Successful")]


# activities


def test_activities_are_listed_page_by_page_the_newest_first(tracked: Scaled) -> None:
    for number in range(2, 10):
        tracked.register(number, 10)
        tracked.settle()
    client, found, request = tracked.client(), [], {"ServiceNamespace": "sagemaker", "MaxResults": 3}
    while True:
        page = client.describe_scaling_activities(**request)
        found += [activity["Cause"] for activity in page["ScalingActivities"]]
        # what comes meanwhile does not shift the next page
        tracked.register(10 if len(found) % 2 else 9, 10)
        tracked.settle()
        if "NextToken" not in page:
            break
        request["NextToken"] = page["NextToken"]
    assert found == [f"minimum capacity was set to {number}" for number in range(9, 1, -1)]


def test_activities_are_those_of_a_resource_account_and_region(tracked: Scaled) -> None:
    high(tracked, 30.0)
    assert len(tracked.activities(ResourceId=RESOURCE)) == 1
    assert tracked.activities(ResourceId="endpoint/e/variant/B") == []
    assert tracked.activities(ResourceId=RESOURCE, ScalableDimension=TARGET["ScalableDimension"])
    other = tracked.client(region_name="eu-west-1")
    assert other.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"] == []
    elsewhere = tracked.client().describe_scaling_activities(ServiceNamespace="rds")
    assert elsewhere["ScalingActivities"] == []


def test_activities_are_forgotten_after_six_weeks(tracked: Scaled) -> None:
    high(tracked, 30.0)
    tracked.settle()
    tracked.now += 6 * 7 * 86_400 - 10
    assert len(tracked.activities()) == 1
    tracked.now += 20
    assert tracked.activities() == []
    tracked.restart()
    high(tracked, 90.0)
    assert len(tracked.activities()) == 1
    tracked.now -= 20
    tracked.restart()
    assert len(tracked.activities()) == 1


def test_the_oldest_activities_of_many_are_forgotten(
    tracked: Scaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.scaling.activities.OF_A_VARIANT", 5)
    for number in range(2, 10):
        tracked.register(number, 10)
        tracked.settle()
    for _ in range(2):
        causes = [activity["Cause"] for activity in tracked.activities()]
        assert causes == [f"minimum capacity was set to {number}" for number in range(9, 4, -1)]
        tracked.restart()
    monkeypatch.setattr("halimede.hosting.scaling.activities.OF_A_SCOPE", 2)
    tracked.add("f", "A")
    for low_bound in (2, 3, 4, 5):
        tracked.register(low_bound, 10, ResourceId="endpoint/f/variant/A")
        tracked.settle()
    assert len(tracked.activities()) == 5
    assert len(tracked.activities(ResourceId="endpoint/f/variant/A")) == 4


def test_what_changed_nothing_is_forgotten_first(tracked: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.hosting.scaling.activities.OF_A_VARIANT", 3)
    high(tracked, 30.0)
    tracked.settle()
    tracked.variant.desired = tracked.variant.running = 10
    for number in range(5):
        tracked.evaluate(tracked.track(f"q{number}")[0], 30.0 + number)
        tracked.tick(1000)
    assert tracked.statuses() == [(SET_3, "Successful")]
    assert tracked.reasons() == ["AlreadyAtMaxCapacity"] * 2
