"""The alert of a schedule: so many bad executions of the last so many."""

import subprocess
import sys
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.monitoring.scheduler import SETTLE_S
from tests.hosting.monitoring.serving import HOUR, NOON, Monitored


def alert(host: Monitored) -> dict[str, Any]:
    [found] = host.client().list_monitoring_alerts(MonitoringScheduleName="s")["MonitoringAlertSummaries"]
    return dict(found)


def history(host: Monitored, **request: Any) -> list[str]:
    found = host.client().list_monitoring_alert_history(**request)["MonitoringAlertHistory"]
    return [each["AlertStatus"] for each in found]


def run(host: Monitored, *results: dict[str, Any]) -> None:
    """An execution for each result, an hour apart."""
    for result in results:
        hour = (host.now - NOON) // HOUR + 1
        host.tick()
        host.now = NOON + hour * HOUR + SETTLE_S
        host.tick()
        host.finish(**result)


def test_an_alert_goes_off_with_the_first_bad_execution_unless_it_is_told_otherwise(host: Monitored) -> None:
    host.schedule()
    assert (alert(host)["AlertStatus"], history(host)) == ("OK", [])
    run(host, {}, {"violations": 3})
    assert alert(host)["AlertStatus"] == "InAlert"
    run(host, {"failure": "why"}, {})
    host.restart()
    assert (alert(host)["AlertStatus"], history(host)) == ("OK", ["OK", "InAlert"])
    assert history(host, StatusEquals="InAlert", MonitoringScheduleName="s") == ["InAlert"]
    assert history(host, MonitoringAlertName="another") == []


def test_an_alert_may_need_several_bad_executions(host: Monitored) -> None:
    arn = host.schedule()
    name = alert(host)["MonitoringAlertName"]
    answer = host.client().update_monitoring_alert(
        MonitoringScheduleName="s", MonitoringAlertName=name, DatapointsToAlert=2, EvaluationPeriod=3
    )
    assert (answer["MonitoringScheduleArn"], answer["MonitoringAlertName"]) == (arn, name)
    found = alert(host)
    assert (found["DatapointsToAlert"], found["EvaluationPeriod"]) == (2, 3)
    run(host, {"violations": 1}, {})
    assert alert(host)["AlertStatus"] == "OK"
    run(host, {"violations": 1})
    assert alert(host)["AlertStatus"] == "InAlert"
    run(host, {})
    assert alert(host)["AlertStatus"] == "OK"


def test_alerts_that_are_not_there_or_make_no_sense_are_refused(host: Monitored) -> None:
    code, _ = host.refused("list_monitoring_alerts", MonitoringScheduleName="none")
    assert code == "ResourceNotFound"
    host.schedule()
    request = {"MonitoringScheduleName": "s", "DatapointsToAlert": 3, "EvaluationPeriod": 2}
    name = alert(host)["MonitoringAlertName"]
    assert host.refused("update_monitoring_alert", MonitoringAlertName=name, **request) == (
        "ValidationException",
        "DatapointsToAlert, 3, is more than EvaluationPeriod, 2",
    )
    code, _ = host.refused("update_monitoring_alert", MonitoringAlertName="other", **request)
    assert code == "ResourceNotFound"


def test_a_host_starts_without_the_library_of_the_jobs() -> None:
    program = "import sys; import halimede.hosting.host; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=100).returncode == 0


def test_an_alert_that_cannot_be_written_down_at_once_is_later(
    host: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.schedule()
    run(host, {})
    state: Any = host.monitoring._state  # noqa: SLF001 - the disk that fails
    put = state.put_schedule
    failed: list[None] = []

    async def fail_once(schedule: Any) -> None:
        if not failed:
            failed.append(None)
            raise ApiError("InternalFailure", "the disk is full", 500)
        await put(schedule)

    monkeypatch.setattr(state, "put_schedule", fail_once)
    run(host, {"violations": 3})
    assert failed
    assert alert(host)["AlertStatus"] == "InAlert"
