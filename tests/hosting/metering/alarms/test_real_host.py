"""Alarms of a real host, whose minutes take a second."""

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.hosting.metering.alarms.serving import ALARM
from tests.support.host import HostProcess, start_host


def wait_for(condition: Callable[[], bool], timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def state(host: HostProcess, name: str) -> str:
    alarms = host.client("cloudwatch").describe_alarms(
        AlarmNames=[name], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
    )
    [alarm] = alarms["MetricAlarms"] + alarms["CompositeAlarms"]
    found: str = alarm["StateValue"]
    return found


def put(client: Any, value: float) -> None:
    client.put_metric_data(Namespace="mine", MetricData=[{"MetricName": "m", "Value": value}])


def test_alarms_follow_their_metric_and_outlast_a_kill(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--metric-period=1") as host:
        client = host.client("cloudwatch")
        client.put_metric_alarm(**ALARM)
        client.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(a)")
        put(client, 9)
        wait_for(lambda: state(host, "c") == "ALARM")
        assert state(host, "a") == "ALARM"
        wait_for(lambda: state(host, "c") == "OK")
        assert state(host, "a") == "INSUFFICIENT_DATA"
        assert host.stop(signal.SIGKILL) == -signal.SIGKILL
    with start_host(tmp_path / "host", "--metric-period=2") as host:
        client = host.client("cloudwatch")
        assert state(host, "c") == "OK"
        begin = datetime.now(UTC)
        put(client, 1)
        wait_for(lambda: state(host, "a") == "OK")
        items = client.describe_alarm_history(AlarmName="a", StartDate=begin)["AlarmHistoryItems"]
        assert [item["HistorySummary"] for item in items] == ["Alarm updated from INSUFFICIENT_DATA to OK"]
        assert host.stop() == 0
    assert "Traceback" not in host.log
