"""When a monitoring schedule runs, and which time's data it looks at."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from halimede.hosting.errors import invalid
from halimede.hosting.scaling.cron import Cron, CronError

NOW = "NOW"

_HOUR, _DAY = 3600.0, 86400.0
_CRON = re.compile(r"cron\((0 (\*|[0-9]{1,2})(?:/([0-9]{1,2}))? \? \* \* \*)\)")
_OFFSET = re.compile(r"-?P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6})S)?)?")
_MAX_SHOWN = 256

Seconds = Callable[[float], float]
"""What a time of AWS's takes here, in seconds."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """When a schedule runs.

    Attributes:
        cron: at these times; None for once, at once.
        begin_s, end_s: which data a run looks at, in seconds of AWS's from when it was to run: none is positive.
    """

    cron: Cron | None
    begin_s: float
    end_s: float

    @classmethod
    def of(cls, config: Mapping[str, Any], source: Mapping[str, Any]) -> Self:
        """What a `ScheduleConfig` says; an hour's schedule looks at the hour before.

        Args:
            config: it; an empty one is hourly.
            source: the `EndpointInput`, which may have offsets too.

        Raises:
            ApiError: it is none of those that SageMaker has.
        """
        expression = config.get("ScheduleExpression", "cron(0 * ? * * *)").strip()
        begin, end = config.get("DataAnalysisStartTime"), config.get("DataAnalysisEndTime")
        if expression == NOW:
            if begin is None or end is None:
                raise invalid(
                    "ScheduleExpression NOW needs DataAnalysisStartTime and DataAnalysisEndTime, such as -PT1H and "
                    "-PT0H"
                )
            return cls(None, *_window(begin, end, _HOUR))
        found = _CRON.fullmatch(expression)
        if found is None:
            raise _refusal(
                expression,
                "expected NOW, cron(0 * ? * * *) for hourly, cron(0 H ? * * *) or cron(0 H/N ? * * *)",
            )
        try:
            cron = Cron(found[1])
        except CronError as error:
            raise _refusal(expression, str(error)) from None
        if found[3] is not None:
            if not 1 <= int(found[3]) <= 24:
                raise _refusal(expression, f"every {found[3]} hours is not 1 to 24")
            interval = int(found[3]) * _HOUR
        else:
            interval = _HOUR if found[2] == "*" else _DAY
        begin, end = begin or source.get("StartTimeOffset"), end or source.get("EndTimeOffset")
        return cls(cron, *_window(begin, end, interval))

    def next_after(self, after: float, anchor: float, seconds: Seconds) -> float | None:
        """When it runs next, in seconds since 1970; None for never.

        Args:
            after: later than this.
            anchor: the time from which on a shorter hour than AWS's counts.
            seconds: what a time of AWS's takes here.
        """
        if self.cron is None:
            return anchor if after < anchor else None
        factor = seconds(_HOUR) / _HOUR
        there = anchor + (after - anchor) / factor
        found = self.cron.next_after(datetime.fromtimestamp(there, UTC))
        return None if found is None else anchor + (found.timestamp() - anchor) * factor

    def window(self, scheduled: float, seconds: Seconds) -> tuple[float, float]:
        """Which time's data a run looks at that was to be at a time; the end is no part of it."""
        return scheduled - seconds(-self.begin_s), scheduled - seconds(-self.end_s)


def _window(begin: str | None, end: str | None, interval: float) -> tuple[float, float]:
    begin_s = -interval if begin is None else _offset("DataAnalysisStartTime", begin)
    end_s = 0.0 if end is None else _offset("DataAnalysisEndTime", end)
    if begin_s >= end_s:
        raise invalid(
            f"DataAnalysisStartTime ({begin or 'none'}) must be before DataAnalysisEndTime ({end or '-PT0H'})"
        )
    if end_s - begin_s > _DAY:
        raise invalid("DataAnalysisStartTime must not be more than 24 hours before DataAnalysisEndTime")
    return begin_s, end_s


def _offset(member: str, text: str) -> float:
    found = _OFFSET.fullmatch(text)
    if found is None or not any(found.groups()):
        raise invalid(f"{member} '{text[:_MAX_SHOWN]}' is no offset; expected one such as -PT1H")
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups())
    length = days * _DAY + hours * _HOUR + minutes * 60.0 + seconds
    if length and not text.startswith("-"):
        raise invalid(
            f"{member} '{text}' is after the time of the schedule; expected one before it, such as -{text}"
        )
    return -length


def _refusal(expression: str, why: str) -> Exception:
    return invalid(f"ScheduleExpression '{expression[:_MAX_SHOWN]}' is not valid: {why}")
