"""AWS's cron expressions: minutes, hours, day of month, month, day of week (1 is Sunday) and year."""

import calendar
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], 1)}
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_ANY = "?"
_WEEK = 7
_SATURDAY = 7

_NEAREST = re.compile(r"(\d{1,2})W")
_BEFORE_LAST = re.compile(r"L-(\d{1,2})")
_LAST_DAY_OF_WEEK = re.compile(r"([A-Z]{3}|\d)L")
_NTH_DAY_OF_WEEK = re.compile(r"([A-Z]{3}|\d)#([1-5])")


class CronError(Exception):
    """The expression is none; the text says why."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the fields.

    Attributes:
        name: as error texts call it.
        low, high: its least and greatest value.
        names: names of values.
    """

    name: str
    low: int
    high: int
    names: Mapping[str, int]

    def number(self, text: str) -> int:
        """A value.

        Raises:
            CronError: it is none.
        """
        if text in self.names:
            return self.names[text]
        if not re.fullmatch("[0-9]{1,4}", text) or not self.low <= int(text) <= self.high:
            raise CronError(f"'{text}' is no value of {self.name}, which is {self.low} to {self.high}")
        return int(text)

    def numbers(self, text: str) -> frozenset[int]:
        """All values that a text of values, ranges and steps, separated by commas, stands for.

        Raises:
            CronError: it stands for none.
        """
        found: set[int] = set()
        for item in text.split(","):
            found |= self._item(item)
        return frozenset(found)

    def _item(self, text: str) -> set[int]:
        span, slash, step_text = text.partition("/")
        step = 1
        if slash:
            if not re.fullmatch("[0-9]{1,4}", step_text) or not int(step_text):
                raise CronError(f"'{text}' of {self.name}: '{step_text}' is no step")
            step = int(step_text)
        if span == "*":
            return set(range(self.low, self.high + 1, step))
        first, dash, last = span.partition("-")
        begin = self.number(first)
        if not dash:
            return set(range(begin, self.high + 1, step)) if slash else {begin}
        end = self.number(last)
        if end < begin:  # it goes on at the beginning, as FRI-MON does
            if self.high == _LAST_YEAR:
                raise CronError(f"'{text}' of {self.name} ends before it begins")
            end += self.high - self.low + 1
        size = self.high - self.low + 1
        return {(value - self.low) % size + self.low for value in range(begin, end + 1, step)}


_MINUTE = _Field("the minutes", 0, 59, {})
_HOUR = _Field("the hours", 0, 23, {})
_DAY = _Field("the day of the month", 1, 31, {})
_MONTH = _Field("the month", 1, 12, _MONTHS)
_DAY_OF_WEEK = _Field("the day of the week", 1, 7, _DAYS)
_YEAR = _Field("the year", _FIRST_YEAR, _LAST_YEAR, {})


class Cron:
    """A cron expression."""

    def __init__(self, expression: str) -> None:
        """The expression, without the ``cron(…)`` around it.

        Raises:
            CronError: it is none.
        """
        fields = expression.upper().split()
        if len(fields) != 6:
            raise CronError(
                f"it has {len(fields)} fields, and needs 6: minutes, hours, day of month, month, day of week, year"
            )
        minutes, hours, self._day, months, self._day_of_week, years = fields
        if (self._day == _ANY) is (self._day_of_week == _ANY):
            raise CronError("either the day of the month or the day of the week has to be ?, and not both")
        self._minutes = sorted(_MINUTE.numbers(minutes))
        self._hours = sorted(_HOUR.numbers(hours))
        self._months = sorted(_MONTH.numbers(months))
        self._years = sorted(_YEAR.numbers(years))
        # any month tells whether the days are sound
        list(self._days_of(2024, 1))

    def next_after(self, after: datetime, zone: tzinfo = UTC) -> datetime | None:
        """The next time, in UTC; None if there is none any more.

        A time that is skipped when clocks go forward is left out, and one that is there twice counts once.

        Args:
            after: it is later than this; with a time zone.
            zone: of the times that the expression says.
        """
        begin = after.astimezone(zone).date() - timedelta(1)
        for day in self._days(begin):
            for hour in self._hours:
                for minute in self._minutes:
                    local = datetime.combine(day, time(hour, minute), zone)
                    moment = local.astimezone(UTC)
                    if moment > after and moment.astimezone(zone).replace(tzinfo=None) == local.replace(
                        tzinfo=None
                    ):
                        return moment
        return None

    def _days(self, begin: date) -> Iterator[date]:
        """The days of the expression, from one on."""
        for year in self._years:
            if year < begin.year:
                continue
            for month in self._months:
                if (year, month) >= (begin.year, begin.month):
                    for number in sorted(self._days_of(year, month)):
                        day = date(year, month, number)
                        if day >= begin:
                            yield day

    def _days_of(self, year: int, month: int) -> set[int]:
        """The days of a month."""
        last = calendar.monthrange(year, month)[1]
        found: set[int] = set()
        if self._day == _ANY:
            for item in self._day_of_week.split(","):
                found |= set(_by_week(item, year, month, last))
        else:
            for item in self._day.split(","):
                found |= set(_by_month(item, year, month, last))
        return {day for day in found if 1 <= day <= last}


def _by_month(item: str, year: int, month: int, last: int) -> Iterator[int]:
    """The days of a month that an item of the field of days stands for."""
    if item == "L":
        yield last
    elif item == "LW":
        yield _nearest_weekday(last, year, month, last)
    elif (found := _NEAREST.fullmatch(item)) is not None:
        day = _DAY.number(found[1])
        if day <= last:
            yield _nearest_weekday(day, year, month, last)
    elif (found := _BEFORE_LAST.fullmatch(item)) is not None:
        yield last - int(found[1])
    else:
        yield from _DAY.numbers(item)


def _by_week(item: str, year: int, month: int, last: int) -> Iterator[int]:
    """The days of a month that an item of the field of days of the week stands for."""
    if item == "L":
        wanted = {_SATURDAY}
        yield from (day for day in range(1, last + 1) if _day_of_week(year, month, day) in wanted)
    elif (found := _LAST_DAY_OF_WEEK.fullmatch(item)) is not None:
        number = _DAY_OF_WEEK.number(found[1])
        yield next(day for day in range(last, 0, -1) if _day_of_week(year, month, day) == number)
    elif (found := _NTH_DAY_OF_WEEK.fullmatch(item)) is not None:
        number = _DAY_OF_WEEK.number(found[1])
        first = next(day for day in range(1, _WEEK + 1) if _day_of_week(year, month, day) == number)
        yield first + (int(found[2]) - 1) * _WEEK
    else:
        numbers = _DAY_OF_WEEK.numbers(item)
        yield from (day for day in range(1, last + 1) if _day_of_week(year, month, day) in numbers)


def _day_of_week(year: int, month: int, day: int) -> int:
    """1 for Sunday."""
    return date(year, month, day).isoweekday() % _WEEK + 1


def _nearest_weekday(day: int, year: int, month: int, last: int) -> int:
    """The day from Monday to Friday in the month that is nearest to one."""
    weekday = _day_of_week(year, month, day)
    if weekday == _DAYS["SAT"]:
        return day - 1 if day > 1 else day + 2
    if weekday == _DAYS["SUN"]:
        return day + 1 if day < last else day - 2
    return day
