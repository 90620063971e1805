"""Alarms on random values, evaluated minute by minute, beside a plain model of what CloudWatch does."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.states import AlarmState, MissingData
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import Metric, MetricStores
from tests.hosting.metering.alarms.serving import ALARM
from tests.hosting.metering.alarms.test_states import model
from tests.hosting.metering.serving import NOON, SCOPE

METRIC = Metric.of("mine", "m", {})

STATISTICS: Mapping[str, Callable[[Sequence[int]], float]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
    "Average": lambda values: sum(values) / len(values),
}

Minute = Sequence[int]
"""The values of a minute."""


def states_of_model(
    minutes: Sequence[Minute], statistic: str, span: int, periods: int, to_alarm: int, treatment: MissingData
) -> list[AlarmState]:
    """The state after each minute of an alarm that goes off above 5.

    Args:
        minutes: the values.
        statistic: of the alarm.
        span: of how many minutes its period is.
        periods, to_alarm: N and M.
        treatment: what stands for missing values.
    """
    found = []
    state = AlarmState.INSUFFICIENT_DATA
    for over in range(1, len(minutes) + 1):
        row = ""
        for age in range(periods + 2, 0, -1):
            begin = over - age * span
            values = [value for minute in minutes[max(0, begin) : max(0, begin + span)] for value in minute]
            row += "-" if not values else "X" if STATISTICS[statistic](values) > 5 else "0"
        state = model(row, periods, to_alarm, treatment, state)
        found.append(state)
    return found


async def states_of_alarm(
    directory: Path, minutes: Sequence[Minute], document: Mapping[str, object], pace: Pace
) -> list[AlarmState]:
    """The state of an alarm after each minute."""
    length, found = pace.period_s, []
    stores = MetricStores(length)
    now = NOON
    alarms = Alarms(directory / "alarms.db", stores, lambda: now, pace)
    await alarms.open()
    for number, values in enumerate(minutes):
        for value in values:
            stores.of(SCOPE).add(METRIC, value, "None", 1, NOON + number * length + length / 2)
        if not number:
            await alarms.put(SCOPE, document)
        now = NOON + (number + 1) * length + min(2, length / 10)
        await alarms.tick()
        alarm = alarms.find(SCOPE, "a")
        assert alarm is not None
        found.append(alarm.state)
    await alarms.stop()
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_alarms_do_as_the_model(data: st.DataObject) -> None:
    minutes = data.draw(st.lists(st.lists(st.integers(0, 10), max_size=3), min_size=1, max_size=15))
    statistic, treatment = (
        data.draw(st.sampled_from(sorted(STATISTICS))),
        data.draw(st.sampled_from(MissingData)),
    )
    span, periods = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    to_alarm, pace = data.draw(st.integers(1, periods)), Pace(data.draw(st.sampled_from([60, 5, 1])))
    document = {
        **ALARM, "Statistic": statistic, "Period": span * 60, "EvaluationPeriods": periods,
        "DatapointsToAlarm": to_alarm, "TreatMissingData": str(treatment),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(states_of_alarm(Path(directory), minutes, document, pace))
    assert found == states_of_model(minutes, statistic, span, periods, to_alarm, treatment)
