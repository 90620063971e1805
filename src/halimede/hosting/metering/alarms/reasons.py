"""Why an alarm is in its state, in CloudWatch's words and as JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from halimede.hosting.metering.alarms.datapoints import Datapoint
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.states import AlarmState, MissingData

_MAX_SHOWN = 5
"""So many datapoints are told one by one."""

_TREATED = {MissingData.BREACHING: "Breaching", MissingData.NOT_BREACHING: "NonBreaching"}


def reason(definition: MetricDefinition, points: Sequence[Datapoint], state: AlarmState) -> str:
    """Why datapoints put an alarm into a state.

    Args:
        definition: what it watches.
        points: the datapoints that were evaluated, the latest first.
        state: the state.
    """
    gaps = definition.evaluation_periods - len(points)
    filled = _TREATED.get(definition.missing) if gaps > 0 else None
    if state is AlarmState.INSUFFICIENT_DATA:
        return f"Insufficient Data: {_datapoints(gaps)} {_was(gaps)} unknown."
    treated = f"{_count(gaps, 'missing datapoint')} {_was(gaps)} treated as [{filled}]" if filled else ""
    if not points:
        periods = _count(definition.evaluation_periods, "period")
        return f"Threshold Crossed: no datapoints were received for {periods} and {treated}."
    breaches = state is AlarmState.ALARM
    matching = [each for each in points if definition.is_breaching(each.value) == breaches]
    if not matching:  # what is missing has decided, or there are too few datapoints to set the alarm off
        breaches, matching = not breaches, list(points)
    values = ", ".join(
        f"{each.value} ({datetime.fromtimestamp(each.when, UTC):%d/%m/%y %H:%M:%S})"
        for each in matching[:_MAX_SHOWN]
    )
    more = ", ..." if len(matching) > _MAX_SHOWN else ""
    verb = f"{_was(len(matching))}{'' if breaches else ' not'}"
    crossed = f"{verb} {definition.comparison_text} the threshold ({definition.threshold})"
    of_all = f"{len(matching)} out of the last {len(points)} datapoints"
    needed, total = definition.datapoints_to_alarm, definition.evaluation_periods
    least, transition = (needed, "OK -> ALARM") if breaches else (total - needed + 1, "ALARM -> OK")
    minimum = f"(minimum {_datapoints(least)} for {transition} transition)"
    and_treated = f" and {treated}" if treated else ""
    return f"Threshold Crossed: {of_all} [{values}{more}] {crossed}{and_treated} {minimum}."


def reason_data(definition: MetricDefinition, points: Sequence[Datapoint], when: float) -> str:
    """The datapoints, and what they were compared with, as JSON.

    Args:
        definition: what the alarm watches.
        points: the datapoints that were evaluated, the latest first.
        when: the time, in seconds since 1970.
    """
    shown = points[:_MAX_EVALUATED]
    document: dict[str, Any] = {"version": "1.0", "queryDate": _time(when)}
    if points:
        document["startDate"] = _time(points[-1].when)
    if definition.unit:
        document["unit"] = definition.unit
    if definition.statistic:
        document["statistic"] = definition.statistic
    document |= {
        "period": definition.period,
        "recentDatapoints": [each.value for each in reversed(shown)],
        "threshold": definition.threshold,
        "evaluatedDatapoints": [_evaluated(each) for each in shown],
    }
    return orjson.dumps(document).decode()


_MAX_EVALUATED = 25
"""So many datapoints are told as JSON; that may have 4,000 characters."""


def _evaluated(point: Datapoint) -> dict[str, Any]:
    samples = {} if point.samples is None else {"sampleCount": point.samples}
    return {"timestamp": _time(point.when), **samples, "value": point.value}


def composite_reason(trigger: str, state: AlarmState, when: float) -> str:
    """Why a composite alarm is in a state: another alarm, of that ARN, has changed its own."""
    return (
        f"{trigger} transitioned to {state} at {datetime.fromtimestamp(when, UTC):%A %d %B, %Y %H:%M:%S UTC}"
    )


def composite_reason_data(trigger: str, state: AlarmState, when: float) -> str:
    """The same as JSON."""
    alarm: Mapping[str, Any] = {"arn": trigger, "state": {"value": state, "timestamp": _time(when)}}
    return orjson.dumps({"triggeringAlarms": [alarm]}).decode()


def _time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _datapoints(number: int) -> str:
    return _count(number, "datapoint")


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
