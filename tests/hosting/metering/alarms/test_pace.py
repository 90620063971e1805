"""Alarms of a host whose periods are shorter than AWS's."""

import json
from pathlib import Path

from halimede.hosting.metering.pace import Pace
from tests.hosting.metering.alarms.serving import ALARM, describe, state
from tests.hosting.metering.serving import NOON, Metered, metered, moment


def put(host: Metered, *values: float, end: float) -> None:
    """Put values of the five seconds that end with a time each, the latest one last."""
    data = [
        {"MetricName": "m", "Value": value, "Timestamp": moment(end - 5 * age)}
        for age, value in enumerate(reversed(values), 1)
    ]
    host.client("cloudwatch").put_metric_data(Namespace="mine", MetricData=data)


def test_a_minute_of_an_alarm_takes_a_metric_period(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(5)) as host:
        put(host, 9, 9, 1, 9, end=NOON)
        client = host.client("cloudwatch")
        client.put_metric_alarm(**{**ALARM, "EvaluationPeriods": 3, "DatapointsToAlarm": 2})
        client.put_metric_alarm(**{**ALARM, "AlarmName": "twice", "Period": 120, "Statistic": "SampleCount",
                                   "Threshold": 1})  # fmt: skip
        host.tick(NOON + 1)
        assert (state(host), state(host, "twice")) == ("ALARM", "ALARM")
        alarm = describe(host)
        assert alarm["Period"] == 60
        assert json.loads(alarm["StateReasonData"])["recentDatapoints"] == [9, 1, 9]
        put(host, 1, end=NOON + 5)
        host.tick(NOON + 5)
        assert state(host) == "ALARM"
        host.tick(NOON + 6)
        assert state(host) == "OK"


def test_metric_math_has_the_shorter_periods_too(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(5)) as host:
        put(host, 2, 3, end=NOON)
        stat = {"Metric": {"Namespace": "mine", "MetricName": "m"}, "Period": 60, "Stat": "Sum"}
        host.client("cloudwatch").put_metric_alarm(
            AlarmName="a", EvaluationPeriods=2, Threshold=2, ComparisonOperator="GreaterThanOrEqualToThreshold",
            Metrics=[{"Id": "m", "MetricStat": stat, "ReturnData": False}, {"Id": "e", "Expression": "m + 0"}],
        )  # fmt: skip
        host.tick(NOON + 1)
        assert state(host) == "ALARM"
        assert describe(host)["Metrics"][0]["MetricStat"]["Period"] == 60


def test_alarms_are_evaluated_with_the_metric_period_of_the_start(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        host.client("cloudwatch").put_metric_alarm(**ALARM)
        host.tick(NOON + 2)
        assert state(host) == "INSUFFICIENT_DATA"
    with metered(tmp_path, NOON + 10, Pace(5)) as host:
        put(host, 9, end=NOON + 15)
        host.tick(NOON + 16)
        assert state(host) == "ALARM"
