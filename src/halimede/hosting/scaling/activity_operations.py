"""DescribeScalingActivities."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.identity import Caller
from halimede.hosting.paging import begin_of
from halimede.hosting.scaling.activity import Activity
from halimede.hosting.scaling.pages import BAD_TOKEN, is_meant, page_size, resources_of
from halimede.hosting.scaling.state import ScalingState

Request = Mapping[str, Any]
Answer = dict[str, Any]


class ActivityOperations:
    """What has been done."""

    def __init__(self, state: ScalingState, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {"DescribeScalingActivities": self._describe}

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        """The newest first; a token is the number of the last activity that was given, as others come meanwhile."""
        resources, size = resources_of(request), page_size(request)
        token = request.get("NextToken")
        below = begin_of(token, BAD_TOKEN)
        all_kinds = request.get("IncludeNotScaledActivities", False)
        found = []
        for activity in self._state.activities.of(caller.scope, self._now()):
            if token is not None and activity.number >= below:
                continue
            if is_meant(activity.variant, resources) and (all_kinds or not activity.reasons):
                found.append(activity)
            if len(found) > size:
                break
        answer: Answer = {"ScalingActivities": [_description(activity) for activity in found[:size]]}
        if len(found) > size:
            answer["NextToken"] = str(found[size - 1].number)
        return answer


def _description(activity: Activity) -> Answer:
    answer: Answer = {
        "ActivityId": activity.id,
        **activity.variant.members,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": datetime.fromtimestamp(activity.started, UTC),
        "StatusCode": str(activity.status),
    }
    if activity.ended is not None:
        answer["EndTime"] = datetime.fromtimestamp(activity.ended, UTC)
    if activity.message:
        answer["StatusMessage"] = activity.message
    if activity.reasons:
        answer["NotScaledReasons"] = list(activity.reasons)
    return answer
