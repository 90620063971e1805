"""The operations on scheduled actions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.capacity import Variants
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.scaling.names import new_action_arn, variant_of
from halimede.hosting.scaling.pages import is_meant, page_of, resources_of
from halimede.hosting.scaling.policy_operations import check_registered
from halimede.hosting.scaling.records import ActionRecord
from halimede.hosting.scaling.scheduler import ALWAYS_ABOVE, next_run
from halimede.hosting.scaling.state import ScalingState
from halimede.hosting.scaling.target_operations import check_least, least_of

MAX_ACTIONS = 200
"""Of a target (AWS's quota)."""

Request = Mapping[str, Any]
Answer = dict[str, Any]


class ScheduleOperations:
    """Scheduled actions."""

    def __init__(self, state: ScalingState, variants: Variants, now: Callable[[], float]) -> None:
        self._state = state
        self._variants = variants
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "PutScheduledAction": self._put,
            "DescribeScheduledActions": self._describe,
            "DeleteScheduledAction": self._delete,
        }

    async def _put(self, request: Request, caller: Caller) -> Answer:
        variant, name = variant_of(request, caller), request["ScheduledActionName"]
        async with self._state.changing:
            check_registered(self._state, variant)
            now = self._now()
            action = self._state.actions(variant).get(name)
            if action is None:
                if "Schedule" not in request:
                    raise invalid("Schedule is required when a new scheduled action is made")
                if len(self._state.actions(variant)) >= MAX_ACTIONS:
                    msg = f"a scalable target has at most {MAX_ACTIONS} scheduled actions"
                    raise ApiError("LimitExceededException", msg)
                action = ActionRecord(variant, name, new_action_arn(variant, name), now, "")
            least = least_of(self._variants, variant)
            await self._state.put_action(_changed(action, request, now, least))
        return {}

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        resources, names = resources_of(request), request.get("ScheduledActionNames")
        entries = [
            _description(action)
            for action in self._state.actions_of(caller.scope)
            if is_meant(action.variant, resources) and (not names or action.name in names)
        ]
        return page_of(request, entries, "ScheduledActions")

    async def _delete(self, request: Request, caller: Caller) -> Answer:
        variant, name = variant_of(request, caller), request["ScheduledActionName"]
        async with self._state.changing:
            action = self._state.actions(variant).get(name)
            if action is None:
                msg = f"No scheduled action found for {variant.words}, scheduled action name: {name}"
                raise ApiError("ObjectNotFoundException", msg)
            await self._state.remove_action(action)
        return {}


def _changed(action: ActionRecord, request: Request, now: float, least: int) -> ActionRecord:
    """The action as a request wants it; a start and an end that it does not say are none.

    Args:
        action: as it was.
        request: what is to be changed.
        now: the time.
        least: so many instances the variant must have.

    Raises:
        ApiError: it would never run, or set no bounds.
    """
    low, high = action.minimum, action.maximum
    if "ScalableTargetAction" in request:
        bounds = request["ScalableTargetAction"]
        low, high = bounds.get("MinCapacity"), bounds.get("MaxCapacity")
    if low is None and high is None:
        raise invalid("At least one of minimum capacity and maximum capacity should be provided")
    for member, value in (("MinCapacity", low), ("MaxCapacity", high)):
        if value is not None:
            check_least(member, value, least)
    if low is not None and high is not None and high < low:
        raise invalid(f"{ALWAYS_ABOVE}: MaxCapacity is {high}, and MinCapacity is {low}")
    start, end = _seconds(request.get("StartTime")), _seconds(request.get("EndTime"))
    if start is not None and end is not None and end <= start:
        raise invalid("EndTime must be after StartTime")
    changed = replace(
        action,
        schedule=request.get("Schedule", action.schedule),
        zone=request.get("Timezone", action.zone),
        start=start,
        end=end,
        minimum=low,
        maximum=high,
    )
    due = next_run(changed, now)
    if due is None:
        raise invalid(
            f"Schedule '{changed.schedule}' does not run any more: there is no such time in the future"
        )
    return replace(changed, due=due)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _description(action: ActionRecord) -> Answer:
    answer: Answer = {
        "ScheduledActionName": action.name,
        "ScheduledActionARN": action.arn,
        **action.variant.members,
        "Schedule": action.schedule,
        "CreationTime": datetime.fromtimestamp(action.created, UTC),
    }
    if action.zone:
        answer["Timezone"] = action.zone
    for member, moment in (("StartTime", action.start), ("EndTime", action.end)):
        if moment is not None:
            answer[member] = datetime.fromtimestamp(moment, UTC)
    bounds = {"MinCapacity": action.minimum, "MaxCapacity": action.maximum}
    answer["ScalableTargetAction"] = {name: value for name, value in bounds.items() if value is not None}
    return answer
