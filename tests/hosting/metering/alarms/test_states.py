"""M out of N datapoints, some of which are missing: CloudWatch's documented tables, and a plain model of its rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.metering.alarms.states import AlarmState, MissingData, evaluation_range, judge

OK, ALARM, NO_DATA = AlarmState.OK, AlarmState.ALARM, AlarmState.INSUFFICIENT_DATA
KEPT = None
"""The state stays as it was."""

THREE_OF_THREE = {
    #              missing, ignore, breaching, notBreaching
    "0 - X - X": (OK, OK, OK, OK),
    "0 - - - -": (OK, OK, OK, OK),
    "- - - - -": (NO_DATA, KEPT, ALARM, OK),
    "0 X X - X": (ALARM, ALARM, ALARM, ALARM),
    "- - X - -": (ALARM, KEPT, ALARM, OK),
}

TWO_OF_THREE = {
    "0 - X - X": (ALARM, ALARM, ALARM, ALARM),
    "0 0 X 0 X": (ALARM, ALARM, ALARM, ALARM),
    "0 - X - -": (OK, OK, ALARM, OK),
    "- - - - 0": (OK, OK, ALARM, OK),
    "- - - X -": (ALARM, KEPT, ALARM, OK),
}

TREATMENTS = (MissingData.MISSING, MissingData.IGNORE, MissingData.BREACHING, MissingData.NOT_BREACHING)


def read(row: str) -> list[bool | None]:
    """A row of the documentation, whose latest datapoint is on the right, as `judge` takes it."""
    return [{"0": False, "X": True, "-": None}[sign] for sign in reversed(row.split())]


@pytest.mark.parametrize(
    ("to_alarm", "row", "expected"),
    [(3, *each) for each in THREE_OF_THREE.items()] + [(2, *each) for each in TWO_OF_THREE.items()],
)
@pytest.mark.parametrize("current", AlarmState)
def test_the_documented_tables(
    to_alarm: int, row: str, expected: tuple[AlarmState | None, ...], current: AlarmState
) -> None:
    assert evaluation_range(3) == len(row.split())
    found = [judge(read(row), 3, to_alarm, treatment, current) for treatment in TREATMENTS]
    assert found == [current if state is KEPT else state for state in expected]


@pytest.mark.parametrize("row", ["- - - - X", "- - - X -"])
def test_one_breach_after_a_gap_does_not_set_the_alarm_off_yet(row: str) -> None:
    assert judge(read(row), 3, 3, MissingData.MISSING, NO_DATA) is OK
    assert judge(read(row), 3, 3, MissingData.IGNORE, NO_DATA) is NO_DATA


@pytest.mark.parametrize("row", ["- - X - -", "- X - - -", "X - - - -", "X X - - -"])
def test_breaches_followed_by_silence_set_the_alarm_off(row: str) -> None:
    assert judge(read(row), 3, 3, MissingData.MISSING, OK) is ALARM


def model(row: str, periods: int, to_alarm: int, treatment: MissingData, current: AlarmState) -> AlarmState:
    """The rules as the documentation says them, one after the other, on a row of signs."""
    if "-" not in row[-periods:]:
        return ALARM if row[-periods:].count("X") >= to_alarm else OK
    present = row.replace("-", "")
    if len(present) >= periods:
        return ALARM if present[-periods:].count("X") >= to_alarm else OK
    filler = {MissingData.BREACHING: "X", MissingData.NOT_BREACHING: "0"}.get(treatment)
    if filler is not None:
        filled = present + filler * (periods - len(present))
        return ALARM if filled.count("X") >= to_alarm else OK
    if present.count("X") >= to_alarm:
        return ALARM
    if "0" in present:
        return OK
    if treatment is MissingData.IGNORE:
        return current
    if not present:
        return NO_DATA
    age = len(row) - row.index("X")
    return ALARM if age >= to_alarm else OK


@settings(deadline=None)
@given(st.data())
def test_states_follow_the_rules(data: st.DataObject) -> None:
    periods = data.draw(st.integers(1, 6))
    to_alarm = data.draw(st.integers(1, periods))
    length = evaluation_range(periods)
    row = "".join(data.draw(st.lists(st.sampled_from("0X-"), min_size=length, max_size=length)))
    treatment, current = data.draw(st.sampled_from(MissingData)), data.draw(st.sampled_from(AlarmState))
    found = judge(read(" ".join(row)), periods, to_alarm, treatment, current)
    assert found is model(row, periods, to_alarm, treatment, current)
