"""The operations on alerts: each schedule has one, which looks at its latest executions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.listing import page_of
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.monitoring.records import SCHEDULE, Schedule
from halimede.hosting.monitoring.refusals import missing
from halimede.hosting.monitoring.state import MonitoringState

NAME = "DefaultAlert"
"""The alert that each schedule has."""

_PAGE = 100

Request = Mapping[str, Any]
Answer = dict[str, Any]


class AlertOperations:
    """Alerts."""

    def __init__(self, state: MonitoringState, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "ListMonitoringAlerts": self._list,
            "UpdateMonitoringAlert": self._update,
            "ListMonitoringAlertHistory": self._history,
        }

    def _find(self, request: Request, caller: Caller) -> Schedule:
        name = request["MonitoringScheduleName"]
        found = self._state.schedules.get((caller.scope, name))
        if found is None:
            raise missing("monitoring schedule", caller.scope.arn(SCHEDULE, name))
        return found

    async def _list(self, request: Request, caller: Caller) -> Answer:
        found = self._find(request, caller)
        modified = found.alerts[-1][0] if found.alerts else found.created
        summary = {
            "MonitoringAlertName": NAME,
            "CreationTime": _time(found.created),
            "LastModifiedTime": _time(max(modified, found.alert_modified or 0.0)),
            "AlertStatus": found.alert,
            "DatapointsToAlert": found.datapoints,
            "EvaluationPeriod": found.period,
            "Actions": {"ModelDashboardIndicator": {"Enabled": False}},
        }
        return {"MonitoringAlertSummaries": [summary]}

    async def _update(self, request: Request, caller: Caller) -> Answer:
        datapoints, period = request["DatapointsToAlert"], request["EvaluationPeriod"]
        async with self._state.changing:
            found = self._find(request, caller)
            if request["MonitoringAlertName"] != NAME:
                raise ApiError("ResourceNotFound", f"The alert of a monitoring schedule is called {NAME}.")
            if datapoints > period:
                raise invalid(f"DatapointsToAlert, {datapoints}, is more than EvaluationPeriod, {period}")
            changed = replace(found, datapoints=datapoints, period=period, alert_modified=self._now())
            await self._state.put_schedule(changed)
        return {"MonitoringScheduleArn": found.arn, "MonitoringAlertName": NAME}

    async def _history(self, request: Request, caller: Caller) -> Answer:
        entries = [
            {
                "MonitoringScheduleName": schedule.name,
                "MonitoringAlertName": NAME,
                "CreationTime": _time(when),
                "AlertStatus": state,
                "Key": f"{schedule.name}/{number:06d}",
            }
            for (scope, name), schedule in self._state.schedules.items()
            if scope == caller.scope
            and request.get("MonitoringScheduleName", name) == name
            and request.get("MonitoringAlertName", NAME) == NAME
            for number, (when, state) in enumerate(schedule.alerts)
        ]
        asked = {"MaxResults": _PAGE, **request}
        page = page_of(entries, asked, "Key", "MonitoringAlertHistory", "AlertStatus")
        for entry in page["MonitoringAlertHistory"]:
            del entry["Key"]
        return page


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
