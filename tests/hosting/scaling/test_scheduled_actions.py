"""Scheduled actions: putting, describing and deleting them, and what they do when they are due."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.hosting.scaling.serving import NOON, RESOURCE, TARGET, Scaled

NAMESPACE = {"ServiceNamespace": "sagemaker"}
HOUR, DAY = 3600.0, 86400.0


@pytest.fixture(autouse=True)
def _registered(host: Scaled) -> None:
    host.register(1, 10)
    host.tick(0)


def put(host: Scaled, schedule: str | None = "rate(1 hour)", name: str = "x", **further: Any) -> None:
    request = {**TARGET, "ScheduledActionName": name, "ScalableTargetAction": {"MinCapacity": 3}, **further}
    if schedule is not None:
        request["Schedule"] = schedule
    host.client().put_scheduled_action(**request)


def describe(host: Scaled, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.client().describe_scheduled_actions(**NAMESPACE, **request)[
        "ScheduledActions"
    ]
    return found


def bounds(host: Scaled) -> tuple[int, int]:
    (target,) = host.client().describe_scalable_targets(**NAMESPACE)["ScalableTargets"]
    return target["MinCapacity"], target["MaxCapacity"]


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_an_action_is_described_as_it_was_put(host: Scaled) -> None:
    put(
        host,
        "cron(0 9 ? * MON-FRI *)",
        Timezone="Europe/Berlin",
        StartTime=moment(NOON + DAY),
        EndTime=moment(NOON + 9 * DAY),
        ScalableTargetAction={"MinCapacity": 2, "MaxCapacity": 8},
    )
    (action,) = describe(host)
    arn = action.pop("ScheduledActionARN")
    assert arn.startswith("arn:aws:autoscaling:us-east-1:000000000000:scheduledAction:")
    assert arn.endswith(f":resource/sagemaker/{RESOURCE}:scheduledActionName/x")
    assert action == {
        "ScheduledActionName": "x",
        **TARGET,
        "Schedule": "cron(0 9 ? * MON-FRI *)",
        "Timezone": "Europe/Berlin",
        "StartTime": moment(NOON + DAY),
        "EndTime": moment(NOON + 9 * DAY),
        "CreationTime": moment(NOON),
        "ScalableTargetAction": {"MinCapacity": 2, "MaxCapacity": 8},
    }


def test_an_update_keeps_what_it_does_not_say_but_the_start_and_the_end(host: Scaled) -> None:
    put(host, StartTime=moment(NOON + DAY), EndTime=moment(NOON + 2 * DAY))
    client = host.client()
    client.put_scheduled_action(**TARGET, ScheduledActionName="x", ScalableTargetAction={"MaxCapacity": 4})
    (action,) = describe(host)
    assert action["Schedule"] == "rate(1 hour)"
    assert action["ScalableTargetAction"] == {"MaxCapacity": 4}
    assert "StartTime" not in action
    assert "EndTime" not in action
    client.put_scheduled_action(**TARGET, ScheduledActionName="x", Schedule="rate(2 hours)")
    (action,) = describe(host)
    assert (action["Schedule"], action["ScalableTargetAction"]) == ("rate(2 hours)", {"MaxCapacity": 4})


def test_an_action_sets_the_bounds_when_it_is_due(host: Scaled) -> None:
    put(host, "at(2026-03-04T13:00:00)", ScalableTargetAction={"MinCapacity": 3, "MaxCapacity": 5})
    host.tick(HOUR - 1)
    assert bounds(host) == (1, 10)
    host.tick(1)
    assert bounds(host) == (3, 5)
    change, action = host.activities()
    assert (action["Description"], action["Cause"], action["StatusCode"], action["StatusMessage"]) == (
        "Setting min capacity to 3 and max capacity to 5",
        "scheduled action name x was triggered",
        "Successful",
        "Successfully set min capacity to 3 and max capacity to 5",
    )
    assert (change["Description"], change["Cause"]) == (
        "Setting desired instance count to 3.",
        "minimum capacity was set to 3",
    )
    host.settle()
    host.tick(DAY)
    assert len(host.activities()) == 2


def test_an_action_scales_in_to_its_maximum(host: Scaled) -> None:
    host.variant.desired = host.variant.running = 8
    put(host, "cron(30 12 * * ? *)", ScalableTargetAction={"MaxCapacity": 2})
    host.tick(HOUR)
    host.settle()
    assert bounds(host) == (1, 2)
    assert host.variant.running == 2
    assert [activity["Cause"] for activity in host.activities()] == [
        "maximum capacity was set to 2",
        "scheduled action name x was triggered",
    ]
    assert host.activities()[1]["Description"] == "Setting max capacity to 2"


def test_recurring_actions_run_at_each_of_their_times(host: Scaled) -> None:
    put(host, "rate(30 minutes)")
    put(host, "cron(45 * * * ? *)", "y", ScalableTargetAction={"MinCapacity": 1})
    seen = []
    for _ in range(8):
        host.tick(15 * 60)
        host.settle()
        seen.append(bounds(host)[0])
        host.now -= 1
    assert seen == [1, 3, 1, 3, 3, 3, 1, 3]


def test_a_rate_is_counted_from_its_start_and_ends_at_its_end(host: Scaled) -> None:
    put(host, "rate(1 hour)", StartTime=moment(NOON + 600), EndTime=moment(NOON + 600 + HOUR))
    host.tick(600)
    host.tick(HOUR)
    host.tick(HOUR)
    causes = [activity["Cause"] for activity in host.activities()]
    assert causes.count("scheduled action name x was triggered") == 2


def test_suspended_actions_do_not_run_and_are_not_made_up_for(host: Scaled) -> None:
    put(host)
    host.register(SuspendedState={"ScheduledScalingSuspended": True})
    host.tick(HOUR)
    assert bounds(host) == (1, 10)
    host.register(SuspendedState={"ScheduledScalingSuspended": False})
    host.tick(10)
    assert bounds(host) == (1, 10)
    host.tick(HOUR)
    assert bounds(host) == (3, 10)


def test_a_minimum_above_the_targets_maximum_is_not_set(host: Scaled) -> None:
    put(host, ScalableTargetAction={"MinCapacity": 11})
    host.tick(HOUR)
    assert bounds(host) == (1, 10)
    (activity,) = host.activities()
    assert (activity["StatusCode"], activity["StatusMessage"]) == (
        "Failed",
        "Failed to set min capacity to 11. Reason: Maximum capacity cannot be less than minimum capacity",
    )


def test_what_was_due_while_the_host_did_not_run_is_run_once(host: Scaled) -> None:
    put(host)
    put(host, "at(2026-03-04T13:30:00)", "y", ScalableTargetAction={"MaxCapacity": 6})
    host.now += 10.5 * HOUR
    host.restart()
    host.tick()
    host.settle()
    causes = [activity["Cause"] for activity in host.activities()]
    assert causes.count("scheduled action name x was triggered") == 1
    assert causes.count("scheduled action name y was triggered") == 1
    assert bounds(host) == (3, 6)
    host.tick(HOUR / 2)
    causes = [activity["Cause"] for activity in host.activities()]
    assert causes.count("scheduled action name x was triggered") == 2


def test_a_clock_that_jumps_neither_repeats_actions_nor_stops_them(host: Scaled) -> None:
    put(host, "cron(0 * * * ? *)")
    host.tick(30 * DAY)
    assert len([each for each in host.activities() if "triggered" in each["Cause"]]) == 1
    host.settle()
    host.tick(-30 * DAY)  # the next time was a month ahead
    host.tick(HOUR)
    assert len([each for each in host.activities() if "triggered" in each["Cause"]]) == 2


def test_actions_are_listed_page_by_page_and_deleted(host: Scaled) -> None:
    for name in "abcde":
        put(host, name=name)
    pages = (
        host.client()
        .get_paginator("describe_scheduled_actions")
        .paginate(**NAMESPACE, PaginationConfig={"PageSize": 2})
    )
    assert [[action["ScheduledActionName"] for action in page["ScheduledActions"]] for page in pages] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    host.client().delete_scheduled_action(**TARGET, ScheduledActionName="c")
    assert [each["ScheduledActionName"] for each in describe(host)] == ["a", "b", "d", "e"]
    assert [each["ScheduledActionName"] for each in describe(host, ScheduledActionNames=["b", "c"])] == ["b"]
    assert describe(host, ResourceId="endpoint/f/variant/A") == []
    host.restart()
    assert [each["ScheduledActionName"] for each in describe(host)] == ["a", "b", "d", "e"]
    code, text = host.refused("delete_scheduled_action", **TARGET, ScheduledActionName="c")
    assert code == "ObjectNotFoundException"
    assert text == (
        "No scheduled action found for service namespace: sagemaker, resource ID: endpoint/e/variant/A, scalable "
        "dimension: sagemaker:variant:DesiredInstanceCount, scheduled action name: c"
    )


@pytest.mark.parametrize(
    ("further", "text"),
    [
        ({"Schedule": None}, "Schedule is required when a new scheduled action is made"),
        ({"Schedule": "daily"}, "Schedule 'daily' is not valid: expected at(yyyy-mm-ddThh:mm:ss)"),
        (
            {"Schedule": "cron(0 9 * * * *)"},
            "Schedule 'cron(0 9 * * * *)' is not valid: either the day of the month",
        ),
        (
            {"Schedule": "at(2020-01-01T00:00:00)"},
            "Schedule 'at(2020-01-01T00:00:00)' does not run any more: there is no such time in the future",
        ),
        ({"Schedule": "cron(0 0 30 2 ? *)"}, "does not run any more"),
        ({"Timezone": "Mars/Olympus"}, "Timezone 'Mars/Olympus' is none of the IANA time zones"),
        (
            {"ScalableTargetAction": {}},
            "At least one of minimum capacity and maximum capacity should be provided",
        ),
        (
            {"ScalableTargetAction": None},
            "At least one of minimum capacity and maximum capacity should be provided",
        ),
        (
            {"ScalableTargetAction": {"MinCapacity": 5, "MaxCapacity": 4}},
            "Maximum capacity cannot be less than minimum capacity: MaxCapacity is 4, and MinCapacity is 5",
        ),
        (
            {"ScalableTargetAction": {"MinCapacity": 0}},
            "MinCapacity is 0; a variant of a real-time endpoint has 1",
        ),
        (
            {"ScalableTargetAction": {"MaxCapacity": 0}},
            "MaxCapacity is 0; a variant of a real-time endpoint has 1",
        ),
        ({"StartTime": NOON + 60, "EndTime": NOON + 60}, "EndTime must be after StartTime"),
        ({"StartTime": NOON + 2 * HOUR, "EndTime": NOON}, "EndTime must be after StartTime"),
        ({"EndTime": NOON + 60}, "does not run any more"),
        ({"ScheduledActionName": "a/b"}, "Member must satisfy regular expression pattern"),
        ({"ResourceId": "endpoint/e"}, "Unsupported service namespace, resource type or scalable dimension"),
    ],
)
def test_actions_that_are_refused(host: Scaled, further: dict[str, Any], text: str) -> None:
    request = {
        **TARGET,
        "ScheduledActionName": "x",
        "Schedule": "rate(1 hour)",
        "ScalableTargetAction": {"MinCapacity": 1},
        **further,
    }
    request = {name: value for name, value in request.items() if value is not None}
    code, message = host.refused("put_scheduled_action", **request)
    assert code == "ValidationException"
    assert text in message
    assert describe(host) == []


def test_too_many_actions_and_those_of_what_is_not_there_are_refused(
    host: Scaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.scaling.schedule_operations.MAX_ACTIONS", 1)
    put(host)
    put(host, "rate(1 day)")
    request = {**TARGET, "Schedule": "rate(1 day)", "ScalableTargetAction": {"MinCapacity": 1}}
    assert host.refused("put_scheduled_action", **request, ScheduledActionName="y") == (
        "LimitExceededException",
        "a scalable target has at most 1 scheduled actions",
    )
    host.client().deregister_scalable_target(**TARGET)
    code, text = host.refused("put_scheduled_action", **request, ScheduledActionName="y")
    assert code == "ObjectNotFoundException"
    assert text.startswith("No scalable target registered for service namespace: sagemaker, resource ID: ")
