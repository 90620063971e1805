"""Cron expressions of AWS."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.scaling.cron import Cron, CronError

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
"""A Wednesday."""


def times(expression: str, count: int = 3, after: datetime = NOON, zone: str = "UTC") -> list[str]:
    cron, found = Cron(expression), []
    for _ in range(count):
        following = cron.next_after(after, ZoneInfo(zone))
        if following is None:
            break
        after = following
        found.append(following.strftime("%Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 10 * * ? *", ["2026-03-05 10:00", "2026-03-06 10:00", "2026-03-07 10:00"]),
        ("15 12 * * ? *", ["2026-03-04 12:15", "2026-03-05 12:15", "2026-03-06 12:15"]),
        ("0 18 ? * MON-FRI *", ["2026-03-04 18:00", "2026-03-05 18:00", "2026-03-06 18:00"]),
        ("0 18 ? * 2-6 *", ["2026-03-04 18:00", "2026-03-05 18:00", "2026-03-06 18:00"]),
        ("0 8 1 * ? *", ["2026-04-01 08:00", "2026-05-01 08:00", "2026-06-01 08:00"]),
        ("0/10 * ? * MON-FRI *", ["2026-03-04 12:10", "2026-03-04 12:20", "2026-03-04 12:30"]),
        ("*/20 13-14 * * ? *", ["2026-03-04 13:00", "2026-03-04 13:20", "2026-03-04 13:40"]),
        ("0 0 ? * FRI-MON *", ["2026-03-06 00:00", "2026-03-07 00:00", "2026-03-08 00:00"]),
        ("5,35 14 * * ? *", ["2026-03-04 14:05", "2026-03-04 14:35", "2026-03-05 14:05"]),
        ("0 12 L * ? *", ["2026-03-31 12:00", "2026-04-30 12:00", "2026-05-31 12:00"]),
        ("0 12 L-2 * ? *", ["2026-03-29 12:00", "2026-04-28 12:00", "2026-05-29 12:00"]),
        ("0 12 LW * ? *", ["2026-03-31 12:00", "2026-04-30 12:00", "2026-05-29 12:00"]),
        ("0 12 1W * ? *", ["2026-04-01 12:00", "2026-05-01 12:00", "2026-06-01 12:00"]),
        ("0 12 15W MAR-AUG ? *", ["2026-03-16 12:00", "2026-04-15 12:00", "2026-05-15 12:00"]),
        ("0 12 ? * 6L *", ["2026-03-27 12:00", "2026-04-24 12:00", "2026-05-29 12:00"]),
        ("0 12 ? * FRIL *", ["2026-03-27 12:00", "2026-04-24 12:00", "2026-05-29 12:00"]),
        ("0 12 ? * L *", ["2026-03-07 12:00", "2026-03-14 12:00", "2026-03-21 12:00"]),
        ("0 12 ? * 3#1 *", ["2026-04-07 12:00", "2026-05-05 12:00", "2026-06-02 12:00"]),
        ("0 12 ? * TUE#5 *", ["2026-03-31 12:00", "2026-06-30 12:00", "2026-09-29 12:00"]),
        ("0 0 29 2 ? *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 1 JAN ? 2027-2028", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("0 0 1 jan ? 2030,2032", ["2030-01-01 00:00", "2032-01-01 00:00"]),
        ("0 0 1 1 ? 2020", []),
        ("0 0 30 2 ? *", []),
        ("0 23-1 ? 12 WED 2026", ["2026-12-02 00:00", "2026-12-02 01:00", "2026-12-02 23:00"]),
    ],
)
def test_times_of_expressions(expression: str, expected: list[str]) -> None:
    assert times(expression) == expected


def test_times_are_those_of_the_zone() -> None:
    assert times("0 9 * * ? *", 1, zone="America/New_York") == ["2026-03-04 14:00"]
    assert times("0 9 * * ? *", 1, zone="Asia/Kolkata") == ["2026-03-05 03:30"]


def test_a_time_that_clocks_skip_is_left_out_and_one_that_is_there_twice_counts_once() -> None:
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert times("30 2 * * ? *", 2, spring, "Europe/Berlin") == ["2026-03-30 00:30", "2026-03-31 00:30"]
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert times("30 2 * * ? *", 2, autumn, "Europe/Berlin") == ["2026-10-25 00:30", "2026-10-26 01:30"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("0 9 * * ?", "it has 5 fields, and needs 6: minutes, hours, day of month, month, day of week, year"),
        ("", "it has 0 fields"),
        ("0 9 * * * *", "either the day of the month or the day of the week has to be ?, and not both"),
        ("0 9 ? * ? *", "either the day of the month or the day of the week has to be ?, and not both"),
        ("60 9 * * ? *", "'60' is no value of the minutes, which is 0 to 59"),
        ("0 24 * * ? *", "'24' is no value of the hours, which is 0 to 23"),
        ("0 0 0 * ? *", "'0' is no value of the day of the month, which is 1 to 31"),
        ("0 0 1 13 ? *", "'13' is no value of the month"),
        ("0 0 ? * 0 *", "'0' is no value of the day of the week, which is 1 to 7"),
        ("0 0 ? * MON#6 *", "is no value of the day of the week"),
        ("0 0 ? * XYZL *", "'XYZ' is no value of the day of the week"),
        ("0 0 40W * ? *", "'40' is no value of the day of the month"),
        ("0 0 1 * ? 1969", "'1969' is no value of the year, which is 1970 to 2199"),
        ("0 0 1 * ? 2030-2020", "'2030-2020' of the year ends before it begins"),
        ("0/0 0 1 * ? *", "'0/0' of the minutes: '0' is no step"),
        ("0/x 0 1 * ? *", "'X' is no step"),
        ("1,,2 0 1 * ? *", "'' is no value of the minutes"),
        ("-5 0 1 * ? *", "'' is no value of the minutes"),
        ("٣ 0 1 * ? *", "is no value of the minutes"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str, why: str) -> None:
    with pytest.raises(CronError) as raised:
        Cron(expression)
    assert why in str(raised.value)


@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.sets(st.integers(1, 7), min_size=1),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_the_next_time_is_later_and_is_one_of_the_expression(
    minute: int, hour: int, days: set[int], after: datetime, zone: str
) -> None:
    cron = Cron(f"{minute} {hour} ? * {','.join(map(str, sorted(days)))} *")
    begin = after.replace(tzinfo=UTC)
    found = cron.next_after(begin, ZoneInfo(zone))
    assert found is not None
    assert 0 < (found - begin).total_seconds() <= 15 * 86400
    local = found.astimezone(ZoneInfo(zone))
    assert (local.minute, local.hour, local.isoweekday() % 7 + 1 in days) == (minute, hour, True)


@given(st.text("0123456789*/,-?LW# MONJAN", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        cron = Cron(text)
    except CronError:
        return
    found = cron.next_after(NOON)
    assert found is None or found > NOON
