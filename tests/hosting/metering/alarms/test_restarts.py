"""What of alarms outlasts the host, and files that cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
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
from tests.hosting.metering.serving import MINUTE, NOON, metered


def test_alarms_states_tags_and_history_are_there_again(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        client = host.client("cloudwatch")
        client.put_metric_alarm(**ALARM, AlarmActions=[TOPIC], Tags=[{"Key": "k", "Value": "v"}])
        client.put_metric_alarm(**{**ALARM, "AlarmName": "gone"})
        client.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(a)")
        client.delete_alarms(AlarmNames=["gone"])
        put_values(host, 9)
        minute_over(host)
        before = [describe(host), describe(host, "c"), history(host), history(host, "gone")]
    with metered(tmp_path, NOON + 10) as host:
        client = host.client("cloudwatch")
        assert [describe(host), describe(host, "c"), history(host), history(host, "gone")] == before
        assert client.list_tags_for_resource(ResourceARN=arn("a"))["Tags"] == [{"Key": "k", "Value": "v"}]
        put_values(host, 1, end=NOON + MINUTE)
        minute_over(host, 1)
        assert (state(host), state(host, "c")) == ("OK", "OK")
        client.delete_alarms(AlarmNames=["c", "a"])
    with metered(tmp_path, NOON + 2 * MINUTE) as host:
        assert host.client("cloudwatch").describe_alarms()["MetricAlarms"] == []


def test_a_period_is_not_acted_on_again_after_a_restart(tmp_path: Path) -> None:
    actions: list[AlarmAction] = []
    for second, expected in ((2, 1), (10, 1), (62, 2)):
        with metered(tmp_path, NOON + second) as host:
            host.loop.call(lambda: host.alarms.add_action("arn:aws:autoscaling", actions.append))
            if second == 2:
                put_values(host, 9, 9, end=NOON + MINUTE)
                host.client("cloudwatch").put_metric_alarm(**ALARM, AlarmActions=[POLICY])
            host.tick(NOON + second)
            assert len(actions) == expected


def test_a_killed_host_has_not_lost_what_it_answered(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from tests.hosting.metering.serving import metered
from tests.hosting.metering.alarms.serving import ALARM, minute_over, put_values
with metered(Path({str(tmp_path)!r})) as host:
    client = host.client("cloudwatch")
    client.put_metric_alarm(**ALARM)
    client.put_metric_alarm(**{{**ALARM, "AlarmName": "b"}})
    client.disable_alarm_actions(AlarmNames=["b"])
    put_values(host, 9)
    minute_over(host)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    with metered(tmp_path, NOON + 10) as host:
        assert (state(host), state(host, "b")) == ("ALARM", "ALARM")
        assert describe(host, "b")["ActionsEnabled"] is False
        assert len(history(host)) == 2


@pytest.mark.parametrize("what", ["no database", "another version"])
def test_a_file_that_cannot_be_read_is_put_aside(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "no database":
        (tmp_path / "alarms.db").write_bytes(b"no database " * 1_000)
    else:
        database = sqlite3.connect(tmp_path / "alarms.db")
        database.execute("PRAGMA user_version = 99")
        database.close()
    with metered(tmp_path) as host:
        host.client("cloudwatch").put_metric_alarm(**ALARM)
        assert state(host) == "INSUFFICIENT_DATA"
    assert (tmp_path / "alarms.db.broken").exists()
    [record] = [record for record in caplog.records if "alarms.db.broken" in record.message]
    assert record.levelname == "ERROR"


class FailingFile:
    """Cannot be written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, _: object) -> None:
        raise sqlite3.OperationalError("disk full")


def test_a_full_disk_refuses_requests_and_evaluates_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    actions: list[AlarmAction] = []
    with metered(tmp_path) as host:
        client = host.client("cloudwatch")
        client.put_metric_alarm(**ALARM, AlarmActions=[POLICY])
        host.loop.call(lambda: host.alarms.add_action("arn:aws:autoscaling", actions.append))
        put_values(host, 9)
        with monkeypatch.context() as patch:
            journal = host.alarms._journal  # noqa: SLF001 - the disk that is full
            patch.setattr(journal, "_file", FailingFile(journal._file))  # noqa: SLF001 - the same
            with pytest.raises(
                client.exceptions.ClientError, match="the alarms cannot be written: disk full"
            ) as error:
                client.put_metric_alarm(**{**ALARM, "AlarmName": "b"})
            assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
            assert client.describe_alarms(AlarmNames=["b"])["MetricAlarms"] == []
            minute_over(host)
            assert state(host) == "ALARM"
            assert len(actions) == 1
        assert "the states of alarms cannot be written now: disk full" in caplog.text
        minute_over(host, 1)
        summaries = [item["HistorySummary"] for item in history(host)]
        assert "Alarm updated from INSUFFICIENT_DATA to ALARM" in summaries
        assert refused(client.delete_alarms, AlarmNames=["none"])[0] == "ResourceNotFound"
    with metered(tmp_path, NOON + MINUTE + 5) as host:
        assert state(host) == "ALARM"
