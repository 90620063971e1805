"""Alarms of a real host, whose minutes take a second."""

import signal
from pathlib import Path
from typing import Any

from tests.hosting.metering.alarms.serving import ALARM
from tests.support.host import start_host
from tests.support.waiting import wait_until


def changes(client: Any, name: str) -> list[str]:
    """The changes of an alarm's state that are on disk, the latest first."""
    types = ["MetricAlarm", "CompositeAlarm"]
    items = client.describe_alarm_history(AlarmName=name, AlarmTypes=types, HistoryItemType="StateUpdate")
    return [item["HistorySummary"] for item in items["AlarmHistoryItems"]]


def put(client: Any, value: float) -> None:
    client.put_metric_data(Namespace="mine", MetricData=[{"MetricName": "m", "Value": value}])


def test_alarms_follow_their_metric_and_outlast_a_kill(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--metric-period=1") as host:
        client = host.client("cloudwatch")
        client.put_metric_alarm(**ALARM)
        client.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(a)")
        put(client, 9)
        wait_until(lambda: "Alarm updated from OK to ALARM" in changes(client, "c"))
        assert "Alarm updated from INSUFFICIENT_DATA to ALARM" in changes(client, "a")
        wait_until(lambda: "Alarm updated from ALARM to OK" in changes(client, "c"))
        assert "Alarm updated from ALARM to INSUFFICIENT_DATA" in changes(client, "a")
        assert host.stop(signal.SIGKILL) == -signal.SIGKILL
    with start_host(tmp_path / "host", "--metric-period=2") as host:
        client = host.client("cloudwatch")
        # with longer periods the value of before may count once more, so that the states may be others by now
        assert {"Alarm updated from OK to ALARM", "Alarm updated from ALARM to OK"} <= set(
            changes(client, "c")
        )
        put(client, 1)
        wait_until(lambda: any(change.endswith("to OK") for change in changes(client, "a")))
        assert host.stop() == 0
    assert "Traceback" not in host.log
