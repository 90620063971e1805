"""Composite alarms: they follow others."""

import json
from typing import Any

import pytest

from halimede.hosting.metering.alarms.alarm import AlarmAction
from tests.hosting.metering.alarms.serving import (
    ALARM,
    POLICY,
    TOPIC,
    arn,
    describe,
    history,
    minute_over,
    put_values,
    refused,
    state,
)
from tests.hosting.metering.serving import MINUTE, NOON, Metered, moment


@pytest.fixture
def two(host: Metered, client: Any) -> None:
    """Alarms on two metrics."""
    for name in ("x", "y"):
        client.put_metric_alarm(**{**ALARM, "AlarmName": name, "MetricName": name})


def test_a_new_composite_alarm_is_evaluated_at_once(two: None, host: Metered, client: Any) -> None:
    client.put_composite_alarm(
        AlarmName="a", AlarmRule="ALARM(x) OR ALARM(y)", Tags=[{"Key": "k", "Value": "v"}]
    )
    alarm = describe(host)
    assert alarm["StateReason"] == f"{arn('a')} was created and its alarm rule evaluates to OK"
    assert {name: alarm[name] for name in ("AlarmName", "AlarmArn", "AlarmRule", "StateValue", "ActionsEnabled")} == {
        "AlarmName": "a", "AlarmArn": arn("a"), "AlarmRule": "ALARM(x) OR ALARM(y)", "StateValue": "OK",
        "ActionsEnabled": True,
    }  # fmt: skip
    client.put_composite_alarm(AlarmName="a", AlarmRule="NOT ALARM(x)")
    assert describe(host)["StateReason"] == f"{arn('a')} was updated and its alarm rule evaluates to ALARM"
    assert client.list_tags_for_resource(ResourceARN=arn("a"))["Tags"] == [{"Key": "k", "Value": "v"}]


def test_a_composite_alarm_follows_its_children(two: None, host: Metered, client: Any) -> None:
    client.put_composite_alarm(AlarmName="both", AlarmRule=f'ALARM("x") AND ALARM({arn("y")})')
    client.put_composite_alarm(AlarmName="neither", AlarmRule="NOT (ALARM(x) OR ALARM(y))")
    client.put_composite_alarm(AlarmName="top", AlarmRule="ALARM(both) OR ALARM(neither)")
    for name, values in (("x", (1, 9, 9)), ("y", (1, 1, 9))):
        put_values(host, *values, end=NOON + 2 * MINUTE, name=name)
    found = []
    for minute in range(3):
        minute_over(host, minute)
        found.append([state(host, name) for name in ("both", "neither", "top")])
    assert found == [["OK", "ALARM", "ALARM"], ["OK", "OK", "OK"], ["ALARM", "OK", "ALARM"]]
    alarm = describe(host, "both")
    assert (
        alarm["StateReason"] == f"{arn('y')} transitioned to ALARM at Wednesday 04 March, 2026 12:02:02 UTC"
    )
    [trigger] = json.loads(alarm["StateReasonData"])["triggeringAlarms"]
    assert trigger == {
        "arn": arn("y"),
        "state": {"value": "ALARM", "timestamp": "2026-03-04T12:02:02.000+0000"},
    }
    assert alarm["StateTransitionedTimestamp"] == moment(NOON + 2 * MINUTE + 2)


def test_children_that_change_together_count_together(two: None, host: Metered, client: Any) -> None:
    client.put_composite_alarm(AlarmName="both", AlarmRule="ALARM(x) AND ALARM(y)")
    client.put_composite_alarm(AlarmName="one", AlarmRule="ALARM(x) AND NOT ALARM(both)")
    for name in ("x", "y"):
        put_values(host, 9, name=name)
    minute_over(host)
    assert (state(host, "both"), state(host, "one")) == ("ALARM", "OK")
    assert [item["HistoryItemType"] for item in history(host, "one")] == [
        "ConfigurationUpdate",
        "StateUpdate",
    ]


def test_actions_of_composite_alarms(two: None, host: Metered, client: Any) -> None:
    actions: list[AlarmAction] = []
    host.loop.call(lambda: host.alarms.add_action("arn:aws:sns:", actions.append))
    client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)", AlarmActions=[TOPIC], OKActions=[TOPIC])
    for value in ("ALARM", "ALARM", "INSUFFICIENT_DATA"):
        client.set_alarm_state(AlarmName="x", StateValue=value, StateReason="r")
    assert [(action.alarm, str(action.state), action.value, action.threshold) for action in actions] == [
        ("a", "OK", None, None), ("a", "ALARM", None, None), ("a", "OK", None, None),
    ]  # fmt: skip


def test_a_set_state_of_a_composite_alarm_lasts_until_a_child_changes(
    two: None, host: Metered, client: Any
) -> None:
    client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)")
    client.put_composite_alarm(AlarmName="b", AlarmRule="ALARM(a)")
    client.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="r")
    assert (state(host), state(host, "b")) == ("ALARM", "ALARM")
    minute_over(host)
    assert state(host) == "ALARM"
    client.set_alarm_state(AlarmName="x", StateValue="OK", StateReason="r")
    assert (state(host), state(host, "b")) == ("OK", "OK")


def test_cycles_are_refused(two: None, client: Any) -> None:
    client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)")
    client.put_composite_alarm(AlarmName="b", AlarmRule="ALARM(a)")
    client.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(b)")
    for rule in ("ALARM(c)", "ALARM(a)", "ALARM(x) OR NOT OK(b)"):
        code, text = refused(client.put_composite_alarm, AlarmName="a", AlarmRule=rule)
        assert (code, text) == (
            "ValidationError",
            "Could not save the composite alarm as its rule refers to a itself",
        )
    client.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(x)")


def test_a_chain_of_composite_alarms(two: None, host: Metered, client: Any) -> None:
    before = "x"
    for number in range(50):
        client.put_composite_alarm(AlarmName=f"a{number}", AlarmRule=f"ALARM({before})")
        before = f"a{number}"
    client.set_alarm_state(AlarmName="x", StateValue="ALARM", StateReason="r")
    assert state(host, before) == "ALARM"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"AlarmRule": "ALARM(x) OR ALARM(none) OR OK(nobody)"},
         "Could not save the composite alarm as alarms [nobody, none] in the alarm rule do not exist"),
        ({"AlarmRule": f"ALARM({arn('x').replace('eu-west-1', 'us-west-2')})"},
         "is no alarm of account 000000000000 in eu-west-1"),
        ({"AlarmRule": "ALARM(x"}, "AlarmRule has 'ALARM(x' where one of OK, ALARM, INSUFFICIENT_DATA"),
        ({"AlarmRule": "TRUE "}, "AlarmRule must not contain leading or trailing whitespace"),
        ({"AlarmRule": None}, "Value null at 'alarmRule' failed to satisfy constraint: Member must not be null"),
        ({"AlarmName": "x"}, "The alarm x exists and is a MetricAlarm; delete it before"),
        ({"AlarmActions": [POLICY]}, "Composite alarms cannot have scaling policies as actions"),
        ({"AlarmActions": ["x"]}, "Invalid arn syntax: x"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(two: None, client: Any, change: dict[str, Any], text: str) -> None:
    request = {"AlarmName": "a", "AlarmRule": "ALARM(x)", **change}
    given = {name: value for name, value in request.items() if value is not None}
    code, message = refused(client.put_composite_alarm, **given)
    assert code == "ValidationError"
    assert text in message
    assert client.describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"] == []


def test_a_metric_alarm_does_not_take_a_composite_alarms_name(two: None, client: Any) -> None:
    client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)")
    code, text = refused(client.put_metric_alarm, **ALARM)
    assert (code, text) == ("ValidationError", "The alarm a exists and is a CompositeAlarm; delete it before")
