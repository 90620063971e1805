"""Describing alarms, their history and tags, setting their states, deleting them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

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
from tests.hosting.metering.serving import DAY, MINUTE, NOON, Metered, moment

BOTH = ["MetricAlarm", "CompositeAlarm"]


def names(answer: Any) -> list[str]:
    return [alarm["AlarmName"] for alarm in answer["CompositeAlarms"] + answer["MetricAlarms"]]


@pytest.fixture
def several(client: Any) -> None:
    for name in ("b", "ab", "aa", "c"):
        actions = [TOPIC] if name == "aa" else [POLICY] if name == "b" else []
        client.put_metric_alarm(**{**ALARM, "AlarmName": name}, AlarmActions=actions)
    client.put_composite_alarm(AlarmName="ac", AlarmRule="ALARM(aa) OR ALARM(b)", OKActions=[TOPIC])
    client.put_composite_alarm(AlarmName="d", AlarmRule=f'OK(ac) AND INSUFFICIENT_DATA("{arn("aa")}")')


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, ["aa", "ab", "b", "c"]),
        ({"AlarmTypes": ["CompositeAlarm"]}, ["ac", "d"]),
        ({"AlarmTypes": BOTH}, ["ac", "d", "aa", "ab", "b", "c"]),
        ({"AlarmTypes": ["LogAlarm"]}, []),
        ({"AlarmNames": ["c", "aa", "ac", "none"]}, ["aa", "c"]),
        ({"AlarmNamePrefix": "a"}, ["aa", "ab"]),
        ({"AlarmNamePrefix": "a", "AlarmTypes": BOTH}, ["ac", "aa", "ab"]),
        ({"StateValue": "OK", "AlarmTypes": BOTH}, ["ac"]),
        ({"StateValue": "ALARM", "AlarmTypes": BOTH}, ["d"]),
        ({"StateValue": "INSUFFICIENT_DATA"}, ["aa", "ab", "b", "c"]),
        ({"ActionPrefix": "arn:aws:sns", "AlarmTypes": BOTH}, ["ac", "aa"]),
        ({"ActionPrefix": POLICY}, ["b"]),
        ({"ChildrenOfAlarmName": "ac"}, ["aa", "b"]),
        ({"ChildrenOfAlarmName": "d"}, ["ac", "aa"]),
        ({"ParentsOfAlarmName": "aa"}, ["ac", "d"]),
        ({"ParentsOfAlarmName": "c"}, []),
    ],
)
def test_which_alarms_are_described(
    several: None, client: Any, request_: dict[str, Any], expected: list[str]
) -> None:
    assert names(client.describe_alarms(**request_)) == expected


def test_relatives_are_described_in_short(several: None, client: Any) -> None:
    [child, _] = client.describe_alarms(ChildrenOfAlarmName="ac")["MetricAlarms"]
    updated = child.pop("StateUpdatedTimestamp")
    assert updated == moment(NOON)
    assert child == {"AlarmName": "aa", "AlarmArn": arn("aa"), "StateValue": "INSUFFICIENT_DATA"}


def test_alarms_are_described_page_by_page(several: None, client: Any) -> None:
    pages = client.get_paginator("describe_alarms").paginate(
        AlarmTypes=BOTH, PaginationConfig={"PageSize": 4}
    )
    assert [names(page) for page in pages] == [["ac", "aa", "ab", "b"], ["d", "c"]]


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ({"AlarmNames": ["a"], "AlarmNamePrefix": "a"}, "ValidationError", "cannot be specified together"),
        ({"ChildrenOfAlarmName": "ac", "StateValue": "OK"}, "ValidationError", "only with MaxRecords and NextToken"),
        ({"ChildrenOfAlarmName": "ac", "ParentsOfAlarmName": "ac"}, "ValidationError", "only with MaxRecords"),
        ({"ChildrenOfAlarmName": "aa"}, "ValidationError", "aa is not a composite alarm"),
        ({"ChildrenOfAlarmName": "none"}, "ValidationError", "The alarm none does not exist"),
        ({"ParentsOfAlarmName": "none"}, "ValidationError", "The alarm none does not exist"),
        ({"NextToken": "x"}, "InvalidNextToken", "The specified nextToken is invalid"),
        ({"MaxRecords": 101}, "ValidationError", "less than or equal to 100"),
        ({"AlarmNames": ["a"] * 101}, "ValidationError", "less than or equal to 100"),
        ({"AlarmTypes": ["Alarm"]}, "ValidationError", "enum value set"),
    ],
)  # fmt: skip
def test_bad_descriptions(several: None, client: Any, request_: dict[str, Any], code: str, text: str) -> None:
    found = refused(client.describe_alarms, **request_)
    assert found[0] == code
    assert text in found[1]


def test_alarms_for_a_metric(client: Any) -> None:
    on_e = {**ALARM, "Dimensions": [{"Name": "EndpointName", "Value": "e"}]}
    client.put_metric_alarm(**{**on_e, "AlarmName": "average"})
    client.put_metric_alarm(
        **{**on_e, "AlarmName": "sum", "Statistic": "Sum", "Period": 300, "Unit": "Count"}
    )
    client.put_metric_alarm(**{**ALARM, "AlarmName": "all"})
    metric = {"Namespace": "mine", "MetricName": "m"}

    def found(**request: Any) -> list[str]:
        answer = client.describe_alarms_for_metric(**metric, **request)
        return [alarm["AlarmName"] for alarm in answer["MetricAlarms"]]

    assert found() == ["all"]
    assert found(Dimensions=on_e["Dimensions"]) == ["average", "sum"]
    for further in ({"Statistic": "Sum"}, {"Period": 300}, {"Unit": "Count"}):
        assert found(Dimensions=on_e["Dimensions"], **further) == ["sum"]
    assert found(ExtendedStatistic="p90") == []
    twice = [{"Name": "n", "Value": value} for value in "xy"]
    assert (
        refused(client.describe_alarms_for_metric, **metric, Dimensions=twice)[0] == "InvalidParameterValue"
    )


def test_what_has_happened_is_told(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM, AlarmActions=[TOPIC], Dimensions=[])
    put_values(host, 9)
    minute_over(host)
    host.now += 10
    client.put_metric_alarm(**{**ALARM, "Threshold": 7})
    client.delete_alarms(AlarmNames=["a"])
    items = history(host)
    assert [(item["Timestamp"].timestamp() - NOON, item["HistorySummary"]) for item in items] == [
        (0, 'Alarm "a" created'),
        (2, "Alarm updated from INSUFFICIENT_DATA to ALARM"),
        (2, f"Failed to execute action {TOPIC}"),
        (12, 'Alarm "a" updated'),
        (12, 'Alarm "a" deleted'),
    ]
    assert [item["HistoryItemType"] for item in items] == [
        "ConfigurationUpdate", "StateUpdate", "Action", "ConfigurationUpdate", "ConfigurationUpdate",
    ]  # fmt: skip
    created, changed, _, updated, deleted = (json.loads(item["HistoryData"]) for item in items)
    assert created["type"] == "Create"
    assert created["createdAlarm"] == {
        "alarmName": "a", "actionsEnabled": True, "okactions": [], "alarmActions": [TOPIC],
        "insufficientDataActions": [], "namespace": "mine", "metricName": "m", "statistic": "Average", "period": 60,
        "dimensions": [], "evaluationPeriods": 1, "threshold": 5, "comparisonOperator": "GreaterThanThreshold",
    }  # fmt: skip
    assert changed["oldState"] == {
        "stateValue": "INSUFFICIENT_DATA", "stateReason": "Unchecked: Initial alarm creation",
    }  # fmt: skip
    assert changed["newState"]["stateReasonData"]["recentDatapoints"] == [9]
    assert (updated["originalUpdatedFields"]["threshold"], updated["updatedAlarm"]["threshold"]) == (5, 7)
    assert deleted["deletedAlarm"]["alarmName"] == "a"


def test_history_is_filtered_and_paged(host: Metered, client: Any) -> None:
    for name in ("a", "b"):
        client.put_metric_alarm(**{**ALARM, "AlarmName": name})
    client.put_composite_alarm(AlarmName="c", AlarmRule="TRUE")
    for number, value in enumerate(("OK", "ALARM"), 1):
        host.now = NOON + number * MINUTE
        client.set_alarm_state(AlarmName="a", StateValue=value, StateReason="r")

    def summaries(**request: Any) -> list[str]:
        items = client.describe_alarm_history(**request)["AlarmHistoryItems"]
        return [item["HistorySummary"] for item in items]

    changes = ["Alarm updated from OK to ALARM", "Alarm updated from INSUFFICIENT_DATA to OK"]
    assert summaries() == [*changes, 'Alarm "b" created', 'Alarm "a" created']
    assert summaries(AlarmTypes=["CompositeAlarm"]) == [
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
        'Alarm "c" created',
    ]
    assert summaries(AlarmName="b") == ['Alarm "b" created']
    assert summaries(AlarmName="none") == []
    assert summaries(HistoryItemType="StateUpdate") == changes
    assert summaries(HistoryItemType="StateUpdate", ScanBy="TimestampAscending") == changes[::-1]
    assert summaries(StartDate=moment(NOON + 90)) == changes[:1]
    assert summaries(StartDate=moment(NOON + 30), EndDate=moment(NOON + 90)) == changes[1:]
    pages = client.get_paginator("describe_alarm_history").paginate(PaginationConfig={"PageSize": 3})
    assert [len(page["AlarmHistoryItems"]) for page in pages] == [3, 1]
    code, text = refused(client.describe_alarm_history, StartDate=moment(NOON), EndDate=moment(NOON))
    assert (code, text) == ("ValidationError", "StartDate must be before EndDate")
    assert refused(client.describe_alarm_history, NextToken="x")[0] == "InvalidNextToken"
    assert refused(client.describe_alarm_history, AlarmContributorId="x")[0] == "ValidationError"


def test_history_is_kept_for_thirty_days_and_bounded(
    host: Metered, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.metering.alarms.alarm_file._OF_AN_ALARM", 4)
    monkeypatch.setattr("halimede.hosting.metering.alarms.alarm_file._OF_ALL", 7)
    client.put_metric_alarm(**ALARM)
    for name in ("b", "c"):
        client.put_metric_alarm(**{**ALARM, "AlarmName": name})

    def reasons(name: str) -> list[str]:
        states = [json.loads(item["HistoryData"]).get("newState") for item in history(host, name)]
        return ["created" if state is None else state["stateReason"] for state in states]

    host.now = NOON + 29 * DAY
    for number in range(3):
        client.set_alarm_state(AlarmName="a", StateValue=("OK", "ALARM")[number % 2], StateReason=str(number))
    assert [reasons(name) for name in "abc"] == [["created", "0", "1", "2"], ["created"], ["created"]]
    client.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="3")
    assert [reasons(name) for name in "abc"] == [["0", "1", "2", "3"], ["created"], ["created"]]
    for number in range(2):
        client.set_alarm_state(AlarmName="b", StateValue=("OK", "ALARM")[number % 2], StateReason=str(number))
    assert [reasons(name) for name in "abc"] == [["0", "1", "2", "3"], ["0", "1"], ["created"]]
    host.now = NOON + 31 * DAY
    client.set_alarm_state(AlarmName="b", StateValue="OK", StateReason="2")
    assert [reasons(name) for name in "abc"] == [["0", "1", "2", "3"], ["0", "1", "2"], []]


def test_a_state_that_is_set_lasts_until_the_next_evaluation(host: Metered, client: Any) -> None:
    put_values(host, 1, 1, end=NOON + MINUTE)
    client.put_metric_alarm(**ALARM)
    minute_over(host)
    client.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="a drill")
    host.tick(NOON + 50)
    assert (state(host), describe(host)["StateReason"]) == ("ALARM", "a drill")
    assert "StateReasonData" not in describe(host)
    minute_over(host, 1)
    assert state(host) == "OK"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"AlarmName": "none"}, "ResourceNotFound", f"There is no alarm {arn('none')}"),
        ({"StateValue": "FINE"}, "ValidationError", "enum value set"),
        ({"StateReason": None}, "ValidationError", "Member must not be null"),
        ({"StateReasonData": "x"}, "InvalidFormat", "StateReasonData is not JSON"),
        ({"StateReasonData": "[]"}, "InvalidFormat", "StateReasonData is not a JSON object"),
    ],
)
def test_bad_states(client: Any, change: dict[str, Any], code: str, text: str) -> None:
    client.put_metric_alarm(**ALARM)
    request = {"AlarmName": "a", "StateValue": "OK", "StateReason": "r", **change}
    found = refused(
        client.set_alarm_state, **{name: each for name, each in request.items() if each is not None}
    )
    assert found[0] == code
    assert text in found[1]


def test_odd_data_of_a_set_state_do_no_harm(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM, OKActions=[POLICY])
    data = json.dumps({"recentDatapoints": ["x", None, 3], "threshold": "high"})
    client.set_alarm_state(AlarmName="a", StateValue="OK", StateReason="r", StateReasonData=data)
    assert state(host) == "OK"


def test_deleting(several: None, client: Any) -> None:
    client.delete_alarms(AlarmNames=["c", "none", "c"])
    assert names(client.describe_alarms()) == ["aa", "ab", "b"]
    code, text = refused(client.delete_alarms, AlarmNames=["none", "c"])
    assert (code, text) == ("ResourceNotFound", "There are no alarms none, c")
    depends = "Cannot delete {} as there are composite alarm(s) depending on it."
    assert refused(client.delete_alarms, AlarmNames=["ab", "aa"]) == ("ValidationError", depends.format("aa"))
    assert refused(client.delete_alarms, AlarmNames=["ac"]) == ("ValidationError", depends.format("ac"))
    assert refused(client.delete_alarms, AlarmNames=["ac", "d"])[0] == "ValidationError"
    assert names(client.describe_alarms(AlarmTypes=BOTH)) == ["ac", "d", "aa", "ab", "b"]
    client.delete_alarms(AlarmNames=["d"])
    client.delete_alarms(AlarmNames=["ac", "aa", "b", "ab"])
    assert names(client.describe_alarms(AlarmTypes=BOTH)) == []
    client.delete_alarms(AlarmNames=[])


def test_tags(client: Any) -> None:
    client.put_metric_alarm(**ALARM, Tags=[{"Key": "team", "Value": "a"}, {"Key": "cost", "Value": ""}])

    def tags() -> dict[str, str]:
        return {
            tag["Key"]: tag["Value"] for tag in client.list_tags_for_resource(ResourceARN=arn("a"))["Tags"]
        }

    assert tags() == {"team": "a", "cost": ""}
    client.tag_resource(
        ResourceARN=arn("a"), Tags=[{"Key": "team", "Value": "b"}, {"Key": "x", "Value": "y"}]
    )
    assert tags() == {"team": "b", "cost": "", "x": "y"}
    client.untag_resource(ResourceARN=arn("a"), TagKeys=["cost", "none"])
    assert tags() == {"team": "b", "x": "y"}
    client.disable_alarm_actions(AlarmNames=["a"])
    assert tags() == {"team": "b", "x": "y"}
    client.delete_alarms(AlarmNames=["a"])
    client.put_metric_alarm(**ALARM)
    assert tags() == {}


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("list_tags_for_resource", {}),
        ("tag_resource", {"Tags": [{"Key": "k", "Value": "v"}]}),
        ("untag_resource", {"TagKeys": ["k"]}),
    ],
)
def test_tags_of_what_is_not_there(client: Any, method: str, request_: dict[str, Any]) -> None:
    call = getattr(client, method)
    for name in (
        arn("none"),
        arn("a").replace("eu-west-1", "us-west-2"),
        "arn:aws:sns:eu-west-1:000000000000:t",
        "a",
    ):
        code, text = refused(call, ResourceARN=name, **request_)
        assert (code, text) == ("ResourceNotFoundException", f"There is no alarm {name}")
    other = arn("a").replace("000000000000", "111111111111")
    assert refused(call, ResourceARN=other, **request_)[0] == "AccessDeniedException"


def test_bad_tags(client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    code, text = refused(client.tag_resource, ResourceARN=arn("a"), Tags=[{"Key": "aws:x", "Value": ""}])
    assert (code, text) == (
        "InvalidParameterValue",
        "aws: prefixed tag key names are not allowed for external use: 'aws:x'",
    )
    many = [{"Key": str(number), "Value": ""} for number in range(51)]
    assert refused(client.tag_resource, ResourceARN=arn("a"), Tags=many)[0] == "InvalidParameterValue"


def test_what_is_not_there_is_refused_by_name(client: Any) -> None:
    code, text = refused(client.put_anomaly_detector, Namespace="n", MetricName="m", Stat="Sum")
    assert code == "UnknownOperationException"
    assert text.startswith(
        "PutAnomalyDetector is not available in this version. Available are DeleteAlarms, "
    )


def test_a_long_configuration_has_a_short_history(host: Metered, client: Any) -> None:
    dimensions = [{"Name": f"n{number}", "Value": "v" * 1_000} for number in range(5)]
    client.put_metric_alarm(**ALARM, Dimensions=dimensions)
    [item] = history(host)
    assert json.loads(item["HistoryData"]) == {"version": "1.0", "type": "Create", "truncated": True}


def test_times_are_utc(client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    [alarm] = client.describe_alarms()["MetricAlarms"]
    assert alarm["StateUpdatedTimestamp"].astimezone(UTC) == datetime(2026, 3, 4, 12, tzinfo=UTC)
