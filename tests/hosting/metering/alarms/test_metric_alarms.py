"""Metric alarms: what they watch, when they are evaluated and why they are in their states."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.hosting.metering.alarms.serving import (
    ALARM,
    arn,
    describe,
    minute_over,
    put_values,
    refused,
    state,
)
from tests.hosting.metering.serving import DAY, HOUR, MINUTE, NOON, Metered, moment

NOTHING_CAME = (
    "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint was treated as [{}]."
)


def test_a_new_alarm_has_insufficient_data(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    alarm = describe(host)
    now = datetime.fromtimestamp(NOON, UTC)
    times = [name for name in alarm if name.endswith("Timestamp")]
    assert sorted(times) == [
        "AlarmConfigurationUpdatedTimestamp", "StateTransitionedTimestamp", "StateUpdatedTimestamp",
    ]  # fmt: skip
    assert {name: alarm.pop(name) for name in times} == dict.fromkeys(times, now)
    assert alarm == {
        **ALARM,
        "AlarmArn": arn("a"),
        "ActionsEnabled": True,
        "OKActions": [],
        "AlarmActions": [],
        "InsufficientDataActions": [],
        "Dimensions": [],
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "Unchecked: Initial alarm creation",
    }


def test_an_alarm_on_a_metric_that_never_comes_stays_without_data(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    for minute in range(20):
        minute_over(host, minute)
    assert state(host) == "INSUFFICIENT_DATA"
    assert describe(host)["StateReason"] == "Unchecked: Initial alarm creation"


@pytest.mark.parametrize(
    ("comparison", "value", "expected"),
    [
        ("GreaterThanThreshold", 5, "OK"),
        ("GreaterThanThreshold", 5.1, "ALARM"),
        ("GreaterThanOrEqualToThreshold", 5, "ALARM"),
        ("GreaterThanOrEqualToThreshold", 4.9, "OK"),
        ("LessThanThreshold", 5, "OK"),
        ("LessThanThreshold", 4.9, "ALARM"),
        ("LessThanOrEqualToThreshold", 5, "ALARM"),
        ("LessThanOrEqualToThreshold", 5.1, "OK"),
    ],
)
def test_comparisons(host: Metered, client: Any, comparison: str, value: float, expected: str) -> None:
    put_values(host, value)
    client.put_metric_alarm(**{**ALARM, "ComparisonOperator": comparison})
    minute_over(host)
    assert state(host) == expected


def test_states_come_and_go_with_reasons(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**{**ALARM, "EvaluationPeriods": 3, "DatapointsToAlarm": 2})
    put_values(host, 1, 9, 8, 9.5, 1, 2, end=NOON + 3 * MINUTE)
    minute_over(host)
    alarm = describe(host)
    assert alarm["StateValue"] == "ALARM"
    assert alarm["StateReason"] == (
        "Threshold Crossed: 2 out of the last 3 datapoints [8.0 (04/03/26 11:59:00), 9.0 (04/03/26 11:58:00)] were "
        "greater than the threshold (5.0) (minimum 2 datapoints for OK -> ALARM transition)."
    )
    assert json.loads(alarm["StateReasonData"]) == {
        "version": "1.0",
        "queryDate": "2026-03-04T12:00:02.000+0000",
        "startDate": "2026-03-04T11:57:00.000+0000",
        "statistic": "Average",
        "period": 60,
        "recentDatapoints": [1, 9, 8],
        "threshold": 5,
        "evaluatedDatapoints": [
            {"timestamp": "2026-03-04T11:59:00.000+0000", "sampleCount": 1, "value": 8},
            {"timestamp": "2026-03-04T11:58:00.000+0000", "sampleCount": 1, "value": 9},
            {"timestamp": "2026-03-04T11:57:00.000+0000", "sampleCount": 1, "value": 1},
        ],
    }
    since = alarm["StateTransitionedTimestamp"]
    assert since == moment(NOON + 2)
    minute_over(host, 2)
    assert describe(host)["StateTransitionedTimestamp"] == since
    minute_over(host, 3)
    assert describe(host)["StateReason"] == (
        "Threshold Crossed: 2 out of the last 3 datapoints [2.0 (04/03/26 12:02:00), 1.0 (04/03/26 12:01:00)] were "
        "not greater than the threshold (5.0) (minimum 2 datapoints for ALARM -> OK transition)."
    )
    for minute in range(4, 9):
        minute_over(host, minute)
    assert describe(host)["StateReason"] == "Insufficient Data: 3 datapoints were unknown."


@pytest.mark.parametrize(
    ("treatment", "expected", "reason"),
    [
        ("breaching", "ALARM", NOTHING_CAME.format("Breaching")),
        ("notBreaching", "OK", NOTHING_CAME.format("NonBreaching")),
        ("ignore", "INSUFFICIENT_DATA", "Unchecked: Initial alarm creation"),
        ("missing", "INSUFFICIENT_DATA", "Unchecked: Initial alarm creation"),
    ],
)  # fmt: skip
def test_missing_data(host: Metered, client: Any, treatment: str, expected: str, reason: str) -> None:
    client.put_metric_alarm(**ALARM, TreatMissingData=treatment)
    minute_over(host)
    alarm = describe(host)
    assert (alarm["StateValue"], alarm["StateReason"]) == (expected, reason)
    assert alarm["TreatMissingData"] == treatment


def test_too_few_values_to_set_an_alarm_off_are_told(host: Metered, client: Any) -> None:
    put_values(host, 9)
    client.put_metric_alarm(**{**ALARM, "EvaluationPeriods": 3})
    minute_over(host)
    assert describe(host)["StateReason"] == (
        "Threshold Crossed: 1 out of the last 1 datapoints [9.0 (04/03/26 11:59:00)] was greater than the threshold "
        "(5.0) (minimum 3 datapoints for OK -> ALARM transition)."
    )


def test_missing_values_that_set_an_alarm_off_are_told(host: Metered, client: Any) -> None:
    put_values(host, 1)
    client.put_metric_alarm(
        **{**ALARM, "EvaluationPeriods": 3, "DatapointsToAlarm": 2}, TreatMissingData="breaching"
    )
    minute_over(host)
    assert describe(host)["StateReason"] == (
        "Threshold Crossed: 1 out of the last 1 datapoints [1.0 (04/03/26 11:59:00)] was not greater than the "
        "threshold (5.0) and 2 missing datapoints were treated as [Breaching] (minimum 2 datapoints for ALARM -> OK "
        "transition)."
    )


def test_the_data_of_a_reason_fit(host: Metered, client: Any) -> None:
    put_values(host, *(number / 7 + 1e-9 for number in range(60, 110)))
    client.put_metric_alarm(**{**ALARM, "EvaluationPeriods": 50})
    minute_over(host)
    alarm = describe(host)
    assert alarm["StateValue"] == "ALARM"
    assert len(alarm["StateReasonData"]) <= 4_000
    assert len(alarm["StateReason"]) <= 1_023
    assert ", ...] were greater than" in alarm["StateReason"]


def test_a_late_value_counts(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    minute_over(host)
    put_values(host, 9)
    minute_over(host)
    assert state(host) == "INSUFFICIENT_DATA"  # that minute has been evaluated
    minute_over(host, 1)
    assert state(host) == "ALARM"


def test_only_whole_minutes_are_evaluated(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    put_values(host, 9, end=NOON + MINUTE)
    host.tick(NOON + MINUTE + 1)
    assert state(host) == "INSUFFICIENT_DATA"
    host.tick(NOON + MINUTE + 2)
    assert state(host) == "ALARM"


def test_a_longer_period_slides_by_the_minute(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**{**ALARM, "Period": 300, "Statistic": "Sum"})
    put_values(host, 2, 2, 0, 0, 0, 0, 0, end=NOON + 2 * MINUTE)
    minute_over(host)
    assert state(host) == "OK"  # 4
    put_values(host, 4, end=NOON + 3 * MINUTE)
    minute_over(host, 3)
    assert state(host) == "OK"  # 4, without the 2 that are older than five minutes
    put_values(host, 2, end=NOON + 4 * MINUTE)
    minute_over(host, 4)
    assert state(host) == "ALARM"


def test_a_metric_of_another_unit_is_none(host: Metered, client: Any) -> None:
    put_values(host, 9)
    client.put_metric_alarm(**ALARM, Unit="Seconds")
    minute_over(host)
    assert state(host) == "INSUFFICIENT_DATA"


def put_many(host: Metered, values: list[float], counts: list[float]) -> None:
    datum = {"MetricName": "m", "Values": values, "Counts": counts, "Timestamp": moment(NOON - MINUTE)}
    host.client("cloudwatch").put_metric_data(Namespace="mine", MetricData=[datum])


def percentile_alarm(name: str, **further: Any) -> dict[str, Any]:
    document = {key: value for key, value in ALARM.items() if key != "Statistic"}
    return {**document, "AlarmName": name, "ExtendedStatistic": "p90", "Threshold": 5.0, **further}


def test_percentiles(host: Metered, client: Any) -> None:
    put_many(host, [1, 9], [89, 11])
    client.put_metric_alarm(**percentile_alarm("p90"))
    client.put_metric_alarm(**percentile_alarm("p89", ExtendedStatistic="p89"))
    client.put_metric_alarm(**percentile_alarm("mean", ExtendedStatistic="tm80"))
    minute_over(host)
    assert (state(host, "p90"), state(host, "p89"), state(host, "mean")) == ("ALARM", "OK", "OK")
    assert json.loads(describe(host, "p90")["StateReasonData"])["statistic"] == "p90"


@pytest.mark.parametrize(("count", "expected"), [(99, "INSUFFICIENT_DATA"), (100, "ALARM")])
def test_percentiles_of_few_values_may_be_ignored(
    host: Metered, client: Any, count: float, expected: str
) -> None:
    put_many(host, [9], [count])
    client.put_metric_alarm(**percentile_alarm("ignored", EvaluateLowSampleCountPercentile="ignore"))
    client.put_metric_alarm(**percentile_alarm("evaluated", EvaluateLowSampleCountPercentile="evaluate"))
    minute_over(host)
    assert (state(host, "ignored"), state(host, "evaluated")) == (expected, "ALARM")


def stat(name: str, **further: Any) -> dict[str, Any]:
    metric = {"Namespace": "mine", "MetricName": name}
    return {
        "Id": name,
        "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"},
        "ReturnData": False,
        **further,
    }


def math_alarm(expression: str, **further: Any) -> dict[str, Any]:
    queries = [stat("errors"), stat("requests"), {"Id": "share", "Expression": expression}]
    return {
        "AlarmName": "a", "EvaluationPeriods": 2, "Threshold": 10.0, "ComparisonOperator": "GreaterThanThreshold",
        "Metrics": queries, **further,
    }  # fmt: skip


def test_metric_math(host: Metered, client: Any) -> None:
    put_values(host, 50, 50, 50, end=NOON + MINUTE, name="requests")
    put_values(host, 10, 6, 4, end=NOON + MINUTE, name="errors")
    client.put_metric_alarm(**math_alarm("errors / requests * 100"))
    minute_over(host)
    alarm = describe(host)
    assert alarm["StateValue"] == "ALARM"
    assert json.loads(alarm["StateReasonData"])["recentDatapoints"] == [20, 12]
    assert [query["Id"] for query in alarm["Metrics"]] == ["errors", "requests", "share"]
    assert "Period" not in alarm
    minute_over(host, 1)
    assert state(host) == "OK"


def test_metric_math_may_fill_what_is_missing(host: Metered, client: Any) -> None:
    put_values(host, 50, 50, name="requests")
    client.put_metric_alarm(**math_alarm("100 - FILL(errors, 0) / requests * 100"))
    minute_over(host)
    assert state(host) == "ALARM"


def test_one_metric_may_be_the_only_query(host: Metered, client: Any) -> None:
    put_values(host, 11, 12)
    client.put_metric_alarm(**math_alarm("", Metrics=[stat("m", ReturnData=True)]))
    minute_over(host)
    assert state(host) == "ALARM"


def test_an_expression_that_cannot_be_evaluated_is_told(host: Metered, client: Any) -> None:
    put_values(host, 1, 1, name="requests")
    put_values(host, 1, 1, name="errors")
    client.put_metric_alarm(**math_alarm("METRICS()"))
    minute_over(host)
    alarm = describe(host)
    assert (alarm["StateValue"], alarm["EvaluationState"]) == ("INSUFFICIENT_DATA", "EVALUATION_ERROR")
    client.put_metric_alarm(**math_alarm("SUM(METRICS())", Threshold=1))
    minute_over(host, 1)
    assert state(host) == "ALARM"
    assert "EvaluationState" not in describe(host)


def test_an_alarm_that_is_put_again_keeps_its_state(host: Metered, client: Any) -> None:
    put_values(host, 9)
    client.put_metric_alarm(**ALARM, AlarmDescription="first", Tags=[{"Key": "k", "Value": "v"}])
    minute_over(host)
    before = describe(host)
    host.now += 10
    client.put_metric_alarm(**{**ALARM, "Threshold": 50}, Tags=[{"Key": "k", "Value": "ignored"}])
    after = describe(host)
    assert after["StateValue"] == "ALARM"
    assert after["StateReason"] == before["StateReason"]
    assert after["StateUpdatedTimestamp"] == before["StateUpdatedTimestamp"]
    assert after["AlarmConfigurationUpdatedTimestamp"] == moment(NOON + 12)
    assert "AlarmDescription" not in after
    assert client.list_tags_for_resource(ResourceARN=arn("a"))["Tags"] == [{"Key": "k", "Value": "v"}]
    put_values(host, 9, end=NOON + MINUTE)
    minute_over(host, 1)
    assert state(host) == "OK"


def test_a_seven_day_alarm(host: Metered, client: Any) -> None:
    for day in range(7):
        put_values(host, 9, end=NOON - day * DAY)
    client.put_metric_alarm(**{**ALARM, "Period": 86_400, "EvaluationPeriods": 7})
    minute_over(host)
    assert state(host) == "ALARM"


def math(**further: Any) -> dict[str, Any]:
    return {"MetricName": None, "Namespace": None, "Statistic": None, "Period": None, **further}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"AlarmName": "a\nb"}, "AlarmName must not contain ASCII control characters"),
        ({"Threshold": None}, "Threshold must not be null"),
        ({"ComparisonOperator": None}, "ComparisonOperator must not be null"),
        ({"EvaluationPeriods": None}, "EvaluationPeriods must not be null"),
        ({"MetricName": None}, "MetricName must not be null"),
        ({"Namespace": None}, "Namespace must not be null"),
        ({"Period": None}, "Period must not be null"),
        ({"Period": 61}, "Period must be 10, 20, 30 or a multiple of 60"),
        ({"Period": 10}, "A Period of 10 is not available in this version"),
        ({"Period": 60, "EvaluationPeriods": 1441},
         "Metrics cannot be checked across more than a day (EvaluationPeriods * Period must be <= 86400)."),
        ({"Period": 3600, "EvaluationPeriods": 169},
         "Metrics cannot be checked across more than seven days (EvaluationPeriods * Period must be <= 604800)."),
        ({"DatapointsToAlarm": 2}, "DatapointsToAlarm must be less than or equal to EvaluationPeriods"),
        ({"Statistic": None}, "Exactly one of Statistic and ExtendedStatistic must be given"),
        ({"ExtendedStatistic": "p90"}, "Exactly one of Statistic and ExtendedStatistic must be given"),
        ({"Statistic": None, "ExtendedStatistic": "p101"},
         "The value p101 for parameter ExtendedStatistic is not supported."),
        ({"TreatMissingData": "ignored"}, "The value ignored is not supported for TreatMissingData parameter."),
        ({"EvaluateLowSampleCountPercentile": "never"}, "The value never is not supported for EvaluateLowSampleCount"),
        ({"ComparisonOperator": "GreaterThanUpperThreshold"}, "anomaly detection, which Greater"),
        ({"ThresholdMetricId": "t"}, "ThresholdMetricId: anomaly detection is not available"),
        ({"EvaluationCriteria": {"PromQLCriteria": {"Query": "up"}}}, "alarms on PromQL queries are not available"),
        ({"EvaluationWindow": {"WallClockWindow": {}}}, "WallClockWindow is not available"),
        ({"WarmUpConfiguration": {"WarmUpPeriodDurationInMinutes": 1}}, "warm-up periods are not available"),
        ({"ComparisonOperator": "Above"}, "Value 'Above' at 'comparisonOperator' failed to satisfy constraint"),
        ({"Period": 0}, "Value '0' at 'period' failed to satisfy constraint"),
        ({"AlarmActions": ["stop"]}, "Invalid arn syntax: stop"),
        ({"OKActions": ["arn:aws:sns:mars-1:000000000000:t"]},
         "Invalid region mars-1 specified. Only eu-west-1 is supported."),
        ({"AlarmActions": ["arn:aws:sns:eu-west-1:000000000000:t"] * 6}, "length less than or equal to 5"),
        ({"Dimensions": [{"Name": "n", "Value": "1"}, {"Name": "n", "Value": "2"}]}, "has a dimension twice"),
        ({"Tags": [{"Key": "aws:k", "Value": "v"}]}, "aws: prefixed tag key names are not allowed"),
        ({"Tags": [{"Key": "k", "Value": "v"}] * 2}, "Duplicate tag keys found"),
        ({"Tags": [{"Key": f"k{n}", "Value": "v"} for n in range(51)]}, "an alarm may have 50 tags"),
        ({"Metrics": [stat("m", ReturnData=True)]}, "The parameters Metrics and MetricName are mutually exclusive"),
        (math(Metrics=[stat("m")]), "Exactly one element of the metrics list should return data."),
        (math(Metrics=[{"Id": "e", "Expression": "TIME_SERIES(1)"}]),
         "Metrics must have 1 to 10 elements with a MetricStat, got 0"),
        (math(Metrics=[stat("m"), {"Id": "e", "Expression": "m +"}]), "Error in expression 'e'"),
        (math(Metrics=[stat("m"), {"Id": "e", "Expression": "ANOMALY_DETECTION_BAND(m)"}]),
         "ANOMALY_DETECTION_BAND is not available"),
        (math(Metrics=[stat("m"), {"Id": "e", "Expression": "SELECT 1"}]), "(SELECT) is not available"),
        (math(Metrics=[stat("m", ReturnData=True, AccountId="0" * 12)]), "alarms on other accounts are not available"),
        (math(Metrics=[stat("m"), {"Id": "e", "Expression": "m", "Period": 120}]), "must have the same Period"),
        (math(Metrics=[stat("m"), stat("m", ReturnData=True)]), "the Id 'm' only once"),
        (math(Metrics=[{"Id": "m", "MetricStat": {"Metric": {"MetricName": "m"}, "Period": 60, "Stat": "Sum"}}]),
         "a MetricStat's Metric has no Namespace"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(host: Metered, client: Any, change: dict[str, Any], text: str) -> None:
    request = {name: value for name, value in {**ALARM, **change}.items() if value is not None}
    code, message = refused(client.put_metric_alarm, **request)
    assert code == "ValidationError"
    assert text in message
    assert client.describe_alarms()["MetricAlarms"] == []


def test_alarms_of_accounts_and_regions_are_apart(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    url = f"http://127.0.0.1:{host.port}"
    other = host.clients.make("cloudwatch", url, region_name="us-west-2")
    assert other.describe_alarms()["MetricAlarms"] == []
    other.put_metric_alarm(**ALARM)
    client.delete_alarms(AlarmNames=["a"])
    assert [alarm["AlarmName"] for alarm in other.describe_alarms()["MetricAlarms"]] == ["a"]


def test_a_jump_of_the_clock_evaluates_once(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    put_values(host, 9)
    minute_over(host)
    host.tick(NOON + 90 * DAY + 2)
    assert state(host) == "INSUFFICIENT_DATA"
    assert describe(host)["StateTransitionedTimestamp"] == moment(NOON + 90 * DAY + 2)


def test_a_clock_that_goes_back_a_little_is_waited_for(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    put_values(host, 9, 1, end=NOON + MINUTE)
    minute_over(host, 1)
    assert state(host) == "OK"
    minute_over(host)
    assert state(host) == "OK"
    put_values(host, 9, end=NOON + 2 * MINUTE)
    minute_over(host, 2)
    assert state(host) == "ALARM"


def test_a_clock_that_goes_back_far_is_followed(host: Metered, client: Any) -> None:
    client.put_metric_alarm(**ALARM)
    put_values(host, 9)
    host.tick(NOON + HOUR + 2)
    assert state(host) == "INSUFFICIENT_DATA"
    minute_over(host)
    assert state(host) == "ALARM"
