"""Evaluates one metric alarm."""

from dataclasses import dataclass

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.datapoints import datapoints
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.reasons import reason, reason_data
from halimede.hosting.metering.alarms.states import AlarmState, judge
from halimede.hosting.metering.store import MetricStore


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation found.

    Attributes:
        state: the state in which the alarm is to be.
        values: the datapoints that were evaluated, the latest first.
        reason, reason_data: why, if the state is another one than before.
        failure: why the alarm cannot be evaluated; "" if it can.
    """

    state: AlarmState
    values: tuple[float, ...] = ()
    reason: str = ""
    reason_data: str = ""
    failure: str = ""


async def evaluate(
    definition: MetricDefinition, current: AlarmState, store: MetricStore, end: int, now: float
) -> Outcome:
    """Find the state of an alarm.

    Args:
        definition: what it watches.
        current: the state in which it is.
        store: the metrics of its account and region.
        end: the end of the last period, in seconds since 1970, a multiple of the store's resolution.
        now: the time, in seconds since 1970.
    """
    try:
        points = await datapoints(definition, store, end)
    except ApiError as error:
        text = f"Unable to evaluate the alarm: {error.message}"
        return Outcome(AlarmState.INSUFFICIENT_DATA, (), text, "", error.message)
    known = [each for each in points if each is not None][: definition.evaluation_periods]
    values = tuple(each.value for each in known)
    if any(each.samples is not None and each.samples < definition.few_samples for each in known):
        return Outcome(current, values)
    breaching = [None if each is None else definition.is_breaching(each.value) for each in points]
    needed, missing = definition.datapoints_to_alarm, definition.missing
    state = judge(breaching, definition.evaluation_periods, needed, missing, current)
    if state is current:
        return Outcome(state, values)
    return Outcome(state, values, reason(definition, known, state), reason_data(definition, known, now))
