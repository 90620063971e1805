"""Runs scheduled actions when they are due. One that was due while the host did not run is run once, when it does."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC

from halimede.hosting.errors import ApiError
from halimede.hosting.scaling.activity import Activity
from halimede.hosting.scaling.records import ActionRecord, Target
from halimede.hosting.scaling.schedules import schedule_of, zone_of
from halimede.hosting.scaling.state import ScalingState

logger = logging.getLogger("halimede")

ALWAYS_ABOVE = "Maximum capacity cannot be less than minimum capacity"


def next_run(action: ActionRecord, after: float) -> float | None:
    """When an action runs after a time; None for never.

    Raises:
        ApiError: its schedule is none.
    """
    schedule = schedule_of(action.schedule, zone_of(action.zone) if action.zone else UTC)
    anchor = action.created if action.start is None else action.start
    due = schedule.next_after(after, anchor)
    return None if due is None or (action.end is not None and due > action.end) else due


class Scheduler:
    """Scheduled actions. Lives on the event loop."""

    def __init__(self, state: ScalingState, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._latest = -math.inf

    async def tick(self) -> None:
        """Run what is due. Whoever calls it holds `ScalingState.changing`."""
        now = self._now()
        is_set_back, self._latest = now < self._latest, now
        actions = self._state.all_actions()
        for action in sorted(actions, key=lambda action: action.due or math.inf):
            try:
                if action.due is not None and action.due <= now:
                    await self._run(action, now)
                elif is_set_back:
                    await self._state.put_action(replace(action, due=next_run(action, now)))
            except ApiError as error:
                logger.error("scheduled action '%s': %s", action.name, error.message)
            except Exception:  # of one action, and the log has what nobody foresaw
                logger.exception("scheduled action '%s' failed", action.name)

    async def _run(self, action: ActionRecord, now: float) -> None:
        """Set the bounds of an action, and when it runs the next time."""
        target = self._state.targets[action.variant]
        if not target.schedule_suspended:
            await self._set_bounds(target, action, now)
        await self._state.put_action(replace(action, due=next_run(action, now)))

    async def _set_bounds(self, target: Target, action: ActionRecord, now: float) -> None:
        low = target.minimum if action.minimum is None else action.minimum
        high = target.maximum if action.maximum is None else action.maximum
        said = [("min", action.minimum), ("max", action.maximum)]
        what = " and ".join(f"{name} capacity to {value}" for name, value in said if value is not None)
        refusal = ALWAYS_ABOVE if low > high else ""
        activities = self._state.activities
        activity = Activity.of_bounds(
            target.variant, activities.next_number(), action.name, what, refusal, now
        )
        if not refusal:
            await self._state.put_target(replace(target, minimum=low, maximum=high, is_bounded=False))
        await activities.put(activity)
