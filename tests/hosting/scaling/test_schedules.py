"""Schedules of scheduled actions."""

from datetime import UTC, datetime

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.scaling.schedules import schedule_of, zone_of


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = seconds("2026-03-04T12:00:00")


def test_once() -> None:
    schedule = schedule_of("at(2026-03-04T13:00:00)")
    assert schedule.next_after(NOON, NOON) == NOON + 3600
    assert schedule.next_after(NOON + 3600, NOON) is None
    berlin = schedule_of("at(2026-03-04T14:00)", zone_of("Europe/Berlin"))
    assert berlin.next_after(NOON, NOON) == NOON + 3600


@pytest.mark.parametrize(
    ("expression", "interval"),
    [("rate(1 minute)", 60), ("rate(5 minutes)", 300), ("rate(2 hours)", 7200), ("rate( 1 day )", 86400)],
)
def test_rates_are_counted_from_their_beginning(expression: str, interval: int) -> None:
    schedule = schedule_of(expression)
    assert schedule.next_after(NOON - 1, NOON) == NOON
    assert schedule.next_after(NOON, NOON) == NOON + interval
    assert schedule.next_after(NOON + 10 * interval + 1, NOON) == NOON + 11 * interval


def test_cron_begins_at_its_start() -> None:
    schedule = schedule_of("cron(0 12 * * ? *)")
    assert schedule.next_after(NOON - 60, NOON - 60) == NOON
    assert schedule.next_after(NOON - 60, NOON) == NOON
    assert schedule.next_after(NOON - 60, NOON + 1) == NOON + 86400


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("every day", "expected at(yyyy-mm-ddThh:mm:ss), rate(value unit) or cron(fields)"),
        ("at(tomorrow)", "expected a time such as 2026-03-04T12:00:00"),
        ("at(2026-02-30T00:00:00)", "day"),
        ("at(2026-03-04T12:00:00Z)", "expected a time such as 2026-03-04T12:00:00"),
        ("rate(0 minutes)", "expected a positive number and minutes, hours or days"),
        ("rate(5 seconds)", "expected a positive number and minutes, hours or days"),
        ("rate(-5 minutes)", "expected a positive number and minutes, hours or days"),
        ("cron(0 9 * * *)", "it has 5 fields, and needs 6"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, why: str) -> None:
    with pytest.raises(ApiError) as raised:
        schedule_of(expression)
    assert raised.value.code == "ValidationException"
    assert raised.value.message.startswith(f"Schedule '{expression}' is not valid: ")
    assert why in raised.value.message


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "x" * 2000, "a\0b"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as raised:
        zone_of(name)
    assert "is none of the IANA time zones" in raised.value.message
