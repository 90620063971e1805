"""When scheduled actions run: once, at a rate, or as a cron expression says."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from halimede.hosting.errors import invalid
from halimede.hosting.scaling.cron import Cron, CronError

_UNITS = {"minute": 60, "hour": 3600, "day": 86400}

_FORM = re.compile(r"(at|rate|cron)\((.*)\)", re.DOTALL)
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")
_RATE = re.compile(r"([0-9]{1,9}) +(minute|hour|day)s?")

_MAX_SHOWN = 256


@dataclass(frozen=True, slots=True)
class At:
    """Once.

    Attributes:
        when: in seconds since 1970.
    """

    when: float

    def next_after(self, after: float, anchor: float) -> float | None:
        """When it runs after a time; None for never."""
        return self.when if self.when > after else None


@dataclass(frozen=True, slots=True)
class Rate:
    """Again and again.

    Attributes:
        interval_s: from one time to the next.
    """

    interval_s: int

    def next_after(self, after: float, anchor: float) -> float | None:
        """When it runs after a time, counted from the anchor."""
        if after < anchor:
            return anchor
        return anchor + ((after - anchor) // self.interval_s + 1) * self.interval_s


@dataclass(frozen=True, slots=True)
class Recurring:
    """At the times of a cron expression.

    Attributes:
        cron: the expression.
        zone: of its times.
    """

    cron: Cron
    zone: tzinfo

    def next_after(self, after: float, anchor: float) -> float | None:
        """When it runs after a time, and not before the anchor; None for never."""
        begin = max(after, anchor - 1)
        found = self.cron.next_after(datetime.fromtimestamp(begin, UTC), self.zone)
        return None if found is None else found.timestamp()


Schedule = At | Rate | Recurring


def zone_of(name: str) -> tzinfo:
    """The time zone of a name.

    Raises:
        ApiError: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"Timezone '{name[:_MAX_SHOWN]}' is none of the IANA time zones, such as Europe/Berlin or UTC"
        raise invalid(msg) from None


def schedule_of(expression: str, zone: tzinfo = UTC) -> Schedule:
    """The schedule that an expression says.

    Args:
        expression: ``at(yyyy-mm-ddThh:mm:ss)``, ``rate(5 minutes)`` or ``cron(0 9 ? * MON-FRI *)``.
        zone: of the times in it.

    Raises:
        ApiError: it is no expression.
    """
    form = _FORM.fullmatch(expression.strip())
    if form is None:
        raise _refusal(expression, "expected at(yyyy-mm-ddThh:mm:ss), rate(value unit) or cron(fields)")
    kind, text = form[1], form[2].strip()
    if kind == "at":
        return At(_moment(expression, text, zone))
    if kind == "rate":
        found = _RATE.fullmatch(text)
        if found is None or not int(found[1]):
            raise _refusal(expression, "expected a positive number and minutes, hours or days")
        return Rate(int(found[1]) * _UNITS[found[2]])
    try:
        return Recurring(Cron(text), zone)
    except CronError as error:
        raise _refusal(expression, str(error)) from None


def _moment(expression: str, text: str, zone: tzinfo) -> float:
    if not _AT.fullmatch(text):
        raise _refusal(expression, "expected a time such as 2026-03-04T12:00:00")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError) as error:
        raise _refusal(expression, str(error)) from None


def _refusal(expression: str, why: str) -> Exception:
    return invalid(f"Schedule '{expression[:_MAX_SHOWN]}' is not valid: {why}")
