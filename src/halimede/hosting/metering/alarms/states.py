"""Which state datapoints put a metric alarm into, with CloudWatch's rules for those that are missing.

An alarm looks at its latest N datapoints (`EvaluationPeriods`), of which M (`DatapointsToAlarm`) must breach its
threshold. So that a late or missing one does not matter, some more periods are looked at, the evaluation range:

all N there         those N decide, also if some of them are older than N periods
fewer than N there  the others are filled in as `TreatMissingData` says
"""

from collections.abc import Sequence
from enum import StrEnum

_SPARE = 2
"""So many periods more than N are looked at."""


class AlarmState(StrEnum):
    """States of alarms."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class MissingData(StrEnum):
    """What stands for a datapoint that is missing (`TreatMissingData`)."""

    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"
    IGNORE = "ignore"
    MISSING = "missing"


def evaluation_range(evaluation_periods: int) -> int:
    """How many periods are looked at."""
    return evaluation_periods + _SPARE


def judge(
    breaching: Sequence[bool | None], periods: int, to_alarm: int, missing: MissingData, current: AlarmState
) -> AlarmState:
    """The state that datapoints put an alarm into.

    Args:
        breaching: for each period of the evaluation range, the latest first, whether its datapoint breaches the
            threshold; None if there is no datapoint.
        periods: how many datapoints count (N).
        to_alarm: how many of them must breach (M).
        missing: what stands for those that are missing.
        current: the state in which the alarm is.
    """
    known = [each for each in breaching if each is not None][:periods]
    breaches = sum(known)
    gaps = periods - len(known)
    if breaches >= to_alarm:
        return AlarmState.ALARM
    if not gaps or missing is MissingData.NOT_BREACHING:
        return AlarmState.OK
    if missing is MissingData.BREACHING:
        return AlarmState.ALARM if breaches + gaps >= to_alarm else AlarmState.OK
    if breaches < len(known):  # something is known to be in order
        return AlarmState.OK
    if missing is MissingData.IGNORE:
        return current
    if not known:
        return AlarmState.INSUFFICIENT_DATA
    # all that is known breaches: the alarm goes off if there has been time enough for M datapoints since
    oldest = max(age for age, each in enumerate(breaching, 1) if each)
    return AlarmState.ALARM if oldest >= to_alarm else AlarmState.OK
