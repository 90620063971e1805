"""The operations on scalable targets and their tags."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.capacity import Variants
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.scaling.alarms import Alarms, delete_alarms
from halimede.hosting.scaling.names import VariantId, new_target_arn, role_arn, variant_of
from halimede.hosting.scaling.pages import is_meant, page_of, resources_of
from halimede.hosting.scaling.records import Target
from halimede.hosting.scaling.scaler import Scaler
from halimede.hosting.scaling.scheduler import ALWAYS_ABOVE
from halimede.hosting.scaling.state import ScalingState

MAX_TARGETS = 500
"""Of an account in a region (AWS's quota)."""

_MAX_TAGS = 50

Request = Mapping[str, Any]
Answer = dict[str, Any]


class TargetOperations:
    """Registering what is scaled."""

    def __init__(
        self,
        state: ScalingState,
        scaler: Scaler,
        variants: Variants,
        alarms: Alarms,
        now: Callable[[], float],
        make_alarms: Callable[[], Awaitable[None]],
    ) -> None:
        """Operations; `make_alarms` makes those that policies lack."""
        self._state = state
        self._scaler = scaler
        self._variants = variants
        self._alarms = alarms
        self._now = now
        self._make_alarms = make_alarms

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "RegisterScalableTarget": self._register,
            "DescribeScalableTargets": self._describe,
            "DeregisterScalableTarget": self._deregister,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._list_tags,
        }

    async def _register(self, request: Request, caller: Caller) -> Answer:
        variant = variant_of(request, caller)
        async with self._state.changing:
            found = self._state.targets.get(variant)
            target = self._new(variant, request) if found is None else found
            target = _changed(target, request, least_of(self._variants, variant))
            if found is None:
                await self._state.add_target(target, _tags_of(request, {}))
            elif request.get("Tags"):
                raise invalid(
                    "The scalable target that you tried to tag already exists. To update tags on an existing scalable "
                    "target, use the TagResource API."
                )
            else:
                await self._state.put_target(target)
            await self._scaler.bound(target, at_once=True)
        return {"ScalableTargetARN": target.arn}

    def _new(self, variant: VariantId, request: Request) -> Target:
        """A target that is not kept yet.

        Raises:
            ApiError: there is no such variant, or there are too many targets.
        """
        if self._variants.capacity(variant.endpoint_id, variant.variant) is None:
            arn = variant.scope.arn("endpoint", variant.endpoint)
            raise invalid(f'Could not find variant "{variant.variant}" of endpoint "{arn}".')
        for member in ("MinCapacity", "MaxCapacity"):
            if member not in request:
                raise invalid(f"{member} is required when a new scalable target is registered")
        if len(self._state.targets_of(variant.scope)) >= MAX_TARGETS:
            msg = f"an account has at most {MAX_TARGETS} scalable targets of {variant.members['ServiceNamespace']}"
            raise ApiError("LimitExceededException", msg)
        role = request.get("RoleARN", role_arn(variant.scope))
        return Target(variant, new_target_arn(variant.scope), role, self._now(), 0, 0)

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        resources = resources_of(request)
        entries = [
            _description(target)
            for target in self._state.targets_of(caller.scope)
            if is_meant(target.variant, resources)
        ]
        return page_of(request, entries, "ScalableTargets")

    async def _deregister(self, request: Request, caller: Caller) -> Answer:
        variant = variant_of(request, caller)
        async with self._state.changing:
            target = self._state.targets.get(variant)
            if target is None:
                raise ApiError("ObjectNotFoundException", f"No scalable target found for {variant.words}")
            policies = list(self._state.policies(variant).values())
            names = [name for policy in policies for name in policy.alarms]
            await delete_alarms(self._alarms, variant.scope, names)
            self._scaler.forget(variant)
            try:
                await self._state.remove_target(target)
            except ApiError:
                await self._make_alarms()  # its policies are still there
                raise
        return {}

    # tags

    def _find(self, request: Request, caller: Caller) -> Target:
        arn = request["ResourceARN"]
        for target in self._state.targets_of(caller.scope):
            if target.arn == arn:
                return target
        msg = f"The specified resource doesn't exist: {arn}"
        raise ApiError("ResourceNotFoundException", msg, fields={"ResourceName": arn})

    async def _tag(self, request: Request, caller: Caller) -> Answer:
        target = self._find(request, caller)
        async with self._state.changing:
            await self._state.put_tags(target.arn, _tags_of(request, await self._state.tags(target.arn)))
        return {}

    async def _untag(self, request: Request, caller: Caller) -> Answer:
        target = self._find(request, caller)
        async with self._state.changing:
            await self._state.remove_tags(target.arn, request["TagKeys"])
        return {}

    async def _list_tags(self, request: Request, caller: Caller) -> Answer:
        return {"Tags": await self._state.tags(self._find(request, caller).arn)}


def least_of(variants: Variants, variant: VariantId) -> int:
    """So many instances a variant must have."""
    capacity = variants.capacity(variant.endpoint_id, variant.variant)
    return 1 if capacity is None else capacity.least


def check_least(member: str, value: int, least: int) -> None:
    """Refuse a bound below what a variant must have.

    Raises:
        ApiError: it is.
    """
    if value < least:
        kind = "a real-time" if least else "an asynchronous"
        unit = "instance" if least == 1 else "instances"
        raise invalid(f"{member} is {value}; a variant of {kind} endpoint has {least} {unit} or more")


def _changed(target: Target, request: Request, least: int) -> Target:
    """The target as a request wants it, of a variant that must have so many instances.

    Raises:
        ApiError: its bounds are none that a variant can have.
    """
    low, high = request.get("MinCapacity", target.minimum), request.get("MaxCapacity", target.maximum)
    check_least("MinCapacity", low, least)
    if high < low:
        raise invalid(f"{ALWAYS_ABOVE}: MaxCapacity is {high}, and MinCapacity is {low}")
    suspended = request.get("SuspendedState", {})
    return replace(
        target,
        minimum=low,
        maximum=high,
        role=request.get("RoleARN", target.role),
        in_suspended=suspended.get("DynamicScalingInSuspended", target.in_suspended),
        out_suspended=suspended.get("DynamicScalingOutSuspended", target.out_suspended),
        schedule_suspended=suspended.get("ScheduledScalingSuspended", target.schedule_suspended),
        is_bounded=False,
    )


def _tags_of(request: Request, before: Mapping[str, str]) -> dict[str, str]:
    """The tags of a request.

    Raises:
        ApiError: one is AWS's own, or there would be too many.
    """
    tags: dict[str, str] = request.get("Tags", {})
    for key in tags:
        if key.lower().startswith("aws:"):
            raise invalid(f"aws: prefixed tag key names are not allowed for external use: '{key}'")
    if len({**before, **tags}) > _MAX_TAGS:
        msg = f"a scalable target has at most {_MAX_TAGS} tags, and would have {len({**before, **tags})}"
        raise ApiError("TooManyTagsException", msg)
    return tags


def _description(target: Target) -> Answer:
    return {
        **target.variant.members,
        "MinCapacity": target.minimum,
        "MaxCapacity": target.maximum,
        "RoleARN": target.role,
        "CreationTime": datetime.fromtimestamp(target.created, UTC),
        "SuspendedState": {
            "DynamicScalingInSuspended": target.in_suspended,
            "DynamicScalingOutSuspended": target.out_suspended,
            "ScheduledScalingSuspended": target.schedule_suspended,
        },
        "ScalableTargetARN": target.arn,
    }
