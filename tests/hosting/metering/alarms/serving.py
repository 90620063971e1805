"""Alarms asked by boto3, on a clock that the test moves."""

from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.hosting.metering.serving import MINUTE, NOON, SCOPE, Metered, moment

ON = {"Namespace": "mine", "MetricName": "m", "Statistic": "Average", "Period": 60}
"""The metric that most tests watch."""

ALARM = {
    **ON, "AlarmName": "a", "EvaluationPeriods": 1, "Threshold": 5.0, "ComparisonOperator": "GreaterThanThreshold",
}  # fmt: skip
"""It goes off above 5."""

POLICY = (
    f"arn:aws:autoscaling:{SCOPE.region}:{SCOPE.account}:scalingPolicy:id:resource/sagemaker/endpoint/e/variant/v:"
    f"policyName/p"
)
TOPIC = f"arn:aws:sns:{SCOPE.region}:{SCOPE.account}:topic"


def arn(name: str) -> str:
    return f"arn:aws:cloudwatch:{SCOPE.region}:{SCOPE.account}:alarm:{name}"


def put_values(host: Metered, *values: float | None, end: float = NOON, name: str = "m") -> None:
    """Put values of the minutes that end with a time, the latest one last; None for a minute without one."""
    client = host.client("cloudwatch")
    for age, value in enumerate(reversed(values), 1):
        if value is not None:
            datum = {"MetricName": name, "Value": value, "Timestamp": moment(end - age * MINUTE)}
            client.put_metric_data(Namespace="mine", MetricData=[datum])


def minute_over(host: Metered, number: int = 0) -> None:
    """Let so many minutes after noon be over, and their values be there."""
    host.tick(NOON + number * MINUTE + 2)


def describe(host: Metered, name: str = "a") -> Any:
    answer = host.client("cloudwatch").describe_alarms(
        AlarmNames=[name], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
    )
    [alarm] = answer["MetricAlarms"] + answer["CompositeAlarms"]
    return alarm


def state(host: Metered, name: str = "a") -> str:
    found: str = describe(host, name)["StateValue"]
    return found


def history(host: Metered, name: str = "a", **further: Any) -> Sequence[Any]:
    types = ["MetricAlarm", "CompositeAlarm"]
    answer = host.client("cloudwatch").describe_alarm_history(
        **{"AlarmName": name, "AlarmTypes": types, "ScanBy": "TimestampAscending", **further}
    )
    items: Sequence[Any] = answer["AlarmHistoryItems"]
    return items


def refused(call: Any, **arguments: Any) -> tuple[str, str]:
    """The code and text of an error."""
    with pytest.raises(ClientError) as error:
        call(**arguments)
    assert 400 <= error.value.response["ResponseMetadata"]["HTTPStatusCode"] < 500
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]
