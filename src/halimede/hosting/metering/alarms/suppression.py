"""Suppressed actions: a composite alarm does nothing while another alarm, its suppressor, is in ALARM.

its state changes          the suppressor may follow: for some time (wait period) nothing is done
the suppressor in ALARM    nothing is done
the suppressor leaves it   for some time more (extension period) nothing is done

After that, what its state wants is done, unless that is the state for which something was done last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from halimede.hosting.metering.alarms.states import AlarmState


class SuppressedBy(StrEnum):
    """What suppresses actions, as CloudWatch calls it."""

    WAIT = "WaitPeriod"
    EXTENSION = "ExtensionPeriod"
    ALARM = "Alarm"


@dataclass(slots=True)
class Suppression:
    """Whether a composite alarm's actions are suppressed.

    Attributes:
        by: what suppresses them; None for nothing.
        until: when the period ends that suppresses them, in seconds since 1970; 0 for none.
        acted: the state for which something was done last.
    """

    by: SuppressedBy | None = None
    until: float = 0.0
    acted: AlarmState = AlarmState.INSUFFICIENT_DATA

    def state_changed(
        self, state: AlarmState, suppressor: AlarmState | None, wait_s: float, now: float
    ) -> bool:
        """Whether something is to be done now that the alarm's state has changed.

        Args:
            state: the alarm's.
            suppressor: the suppressor's; None if it is gone.
            wait_s: the wait period, in seconds.
            now: the time, in seconds since 1970.
        """
        if self.by is None:
            if suppressor is AlarmState.ALARM:
                self.by = SuppressedBy.ALARM
            elif wait_s > 0:
                self.by, self.until = SuppressedBy.WAIT, now + wait_s
            else:
                self.acted = state
        return self.by is None

    def suppressor_changed(
        self, state: AlarmState, suppressor: AlarmState, extension_s: float, now: float
    ) -> bool:
        """Whether something is to be done now that the suppressor's state has changed; arguments as above."""
        if suppressor is AlarmState.ALARM:
            self.by, self.until = SuppressedBy.ALARM, 0.0
            return False
        if self.by is not SuppressedBy.ALARM:
            return False
        self.by, self.until = SuppressedBy.EXTENSION, now + extension_s
        return self.time_passed(state, extension_s, now)

    def time_passed(self, state: AlarmState, longest_s: float, now: float) -> bool:
        """Whether something is to be done now that it is a time.

        Args:
            state: the alarm's.
            longest_s: so long a period lasts at most; a clock that goes back does not make it longer.
            now: the time, in seconds since 1970.
        """
        if not self.until:
            return False
        self.until = min(self.until, now + longest_s)
        if now < self.until:
            return False
        self.by, self.until = None, 0.0
        before, self.acted = self.acted, state
        return before is not state

    def document(self) -> dict[str, Any]:
        """What `of` takes."""
        return {"by": self.by, "until": self.until, "acted": self.acted}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Suppression":
        """What `document` said."""
        by = document["by"]
        return cls(None if by is None else SuppressedBy(by), document["until"], AlarmState(document["acted"]))
