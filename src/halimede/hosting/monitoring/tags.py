"""Tags of what monitoring has; those of everything else are others' business."""

from collections.abc import Mapping
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.control.resources import tags_of
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from halimede.hosting.monitoring.state import MonitoringState

_MAX_TAGS = 50

Request = Mapping[str, Any]


def tag_operations(state: MonitoringState, others: Mapping[str, Operation]) -> Mapping[str, Operation]:
    """AddTags, ListTags and DeleteTags for job definitions and schedules too.

    Args:
        state: where those are.
        others: the same operations for anything else.
    """

    async def add(request: Request) -> Mapping[str, Any]:
        arn = request["ResourceArn"]
        every = {**await state.tags(arn), **tags_of(request)}
        if len(every) > _MAX_TAGS:
            raise ApiError(
                "ResourceLimitExceeded", f'"{arn}" would have {len(every)} tags; it may have {_MAX_TAGS}'
            )
        await state.put_tags(arn, tags_of(request))
        return _answer(every)

    async def list_(request: Request) -> Mapping[str, Any]:
        return _answer(await state.tags(request["ResourceArn"]))

    async def delete(request: Request) -> Mapping[str, Any]:
        await state.remove_tags(request["ResourceArn"], request["TagKeys"])
        return {}

    def either(name: str, ours: Any) -> Operation:
        async def operation(request: Request, caller: Caller) -> Mapping[str, Any]:
            if state.has(caller.scope, request["ResourceArn"]):
                answer: Mapping[str, Any] = await ours(request)
                return answer
            return await others[name](request, caller)

        return operation

    return {
        name: either(name, ours)
        for name, ours in (("AddTags", add), ("ListTags", list_), ("DeleteTags", delete))
    }


def _answer(tags: Mapping[str, str]) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
