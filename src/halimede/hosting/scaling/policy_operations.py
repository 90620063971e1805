"""The operations on scaling policies."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.api.services import Operation
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller
from halimede.hosting.scaling.alarms import (
    Alarms,
    alarm_documents,
    alarm_names,
    delete_alarms,
    is_alarm_of,
)
from halimede.hosting.scaling.configs import MEMBERS, check_config
from halimede.hosting.scaling.names import VariantId, new_policy_arn, variant_of
from halimede.hosting.scaling.pages import is_meant, page_of, resources_of
from halimede.hosting.scaling.records import STEPPING, TRACKING, PolicyRecord
from halimede.hosting.scaling.state import ScalingState

MAX_POLICIES = 50
"""Of a target (AWS's quota)."""

_PAGE = 10
"""Policies of a page of an answer, at most."""

Request = Mapping[str, Any]
Answer = dict[str, Any]


class PolicyOperations:
    """Policies, and the alarms of those that track a target."""

    def __init__(self, state: ScalingState, alarms: Alarms, now: Callable[[], float]) -> None:
        self._state = state
        self._alarms = alarms
        self._now = now

    def operations(self) -> Mapping[str, Operation]:
        """The operations, by name."""
        return {
            "PutScalingPolicy": self._put,
            "DescribeScalingPolicies": self._describe,
            "DeleteScalingPolicy": self._delete,
        }

    async def _put(self, request: Request, caller: Caller) -> Answer:
        variant, name = variant_of(request, caller), request["PolicyName"]
        async with self._state.changing:
            check_registered(self._state, variant)
            before = self._state.policies(variant).get(name)
            kind, config = _config_of(request, before)
            if before is None:
                if len(self._state.policies(variant)) >= MAX_POLICIES:
                    msg = f"a scalable target has at most {MAX_POLICIES} scaling policies"
                    raise ApiError("LimitExceededException", msg)
                arn = new_policy_arn(variant, name)
                policy = PolicyRecord(variant, name, arn, self._now(), kind, config)
            else:
                policy = replace(before, config=config)
            policy = replace(_with_alarms(policy), is_settled=policy.kind != TRACKING)
            await self._state.put_policy(policy)
            try:
                await self._settle(policy)
            except ApiError:
                await self._restore(policy, before)
                raise
        return {"PolicyARN": policy.arn, "Alarms": self._alarms_of(policy)}

    async def _settle(self, policy: PolicyRecord) -> None:
        """Have the alarms that a policy wants, and no others of it.

        They are in another file: if the host ends before that is done, it is done when the host starts (`complete`).

        Raises:
            ApiError: an alarm cannot be made or deleted, or what has become of the policy cannot be written.
        """
        if policy.is_settled:
            return
        await self._put_alarms(policy)
        scope = policy.variant.scope
        own = {
            name for name in self._alarms.with_action(scope, policy.arn) if is_alarm_of(policy.variant, name)
        }
        await delete_alarms(self._alarms, scope, own.difference(policy.alarms))
        await self._state.put_policy(replace(policy, is_settled=True))

    async def _put_alarms(self, policy: PolicyRecord) -> None:
        for document in alarm_documents(policy):
            try:
                await self._alarms.put(policy.variant.scope, document)
            except ApiError as error:
                if error.status >= 500:
                    raise
                code = "LimitExceededException" if error.code == "LimitExceeded" else "ValidationException"
                raise ApiError(code, f"the policy's alarm cannot be made: {error.message}") from None

    async def _restore(self, policy: PolicyRecord, before: PolicyRecord | None) -> None:
        """Have the policy that was there before, as the new one's alarms cannot be made."""
        if before is None:
            await delete_alarms(self._alarms, policy.variant.scope, policy.alarms)
            await self._state.remove_policy(policy)
        else:
            restored = replace(before, is_settled=before.kind != TRACKING)
            await self._state.put_policy(restored)
            await self._settle(restored)

    async def complete(self) -> None:
        """Have the alarms of policies as they should be, where an operation could not do so before the host ended.

        Raises:
            ApiError: they cannot be made.
        """
        for target in list(self._state.targets.values()):
            for policy in list(self._state.policies(target.variant).values()):
                await self._complete(policy)

    async def _complete(self, policy: PolicyRecord) -> None:
        scope = policy.variant.scope
        is_whole = all(self._alarms.find(scope, name) is not None for name in policy.alarms)
        await self._settle(replace(policy, is_settled=policy.is_settled and is_whole))

    async def _describe(self, request: Request, caller: Caller) -> Answer:
        resources, names = resources_of(request), request.get("PolicyNames")
        entries = [
            self._description(policy)
            for policy in self._state.policies_of(caller.scope)
            if is_meant(policy.variant, resources) and (not names or policy.name in names)
        ]
        return page_of(request, entries, "ScalingPolicies", _PAGE)

    def _description(self, policy: PolicyRecord) -> Answer:
        return {
            "PolicyARN": policy.arn,
            "PolicyName": policy.name,
            **policy.variant.members,
            "PolicyType": policy.kind,
            MEMBERS[policy.kind]: policy.config,
            "Alarms": self._alarms_of(policy),
            "CreationTime": datetime.fromtimestamp(policy.created, UTC),
        }

    def _alarms_of(self, policy: PolicyRecord) -> list[dict[str, str]]:
        scope = policy.variant.scope
        lead = f"arn:aws:cloudwatch:{scope.region}:{scope.account}:alarm:"
        names = policy.alarms if policy.kind == TRACKING else self._alarms.with_action(scope, policy.arn)
        return [{"AlarmName": name, "AlarmARN": lead + name} for name in names]

    async def _delete(self, request: Request, caller: Caller) -> Answer:
        variant, name = variant_of(request, caller), request["PolicyName"]
        async with self._state.changing:
            policy = self._state.policies(variant).get(name)
            if policy is None:
                msg = f"No scaling policy found for {variant.words}, policy name: {name}"
                raise ApiError("ObjectNotFoundException", msg)
            await delete_alarms(self._alarms, variant.scope, policy.alarms)
            try:
                await self._state.remove_policy(policy)
            except ApiError:
                await self._put_alarms(policy)  # it is still there
                raise
        return {}


def check_registered(state: ScalingState, variant: VariantId) -> None:
    """Refuse a request about a variant that is no target.

    Raises:
        ApiError: it is none.
    """
    if variant not in state.targets:
        raise ApiError("ObjectNotFoundException", f"No scalable target registered for {variant.words}")


def _with_alarms(policy: PolicyRecord) -> PolicyRecord:
    """The policy with names for its alarms; it keeps those that it has."""
    if policy.kind != TRACKING:
        return policy
    fresh = alarm_names(policy.variant, scales_in=not policy.config.get("DisableScaleIn", False))
    return replace(policy, alarms=policy.alarms[: len(fresh)] + fresh[len(policy.alarms) :])


def _config_of(request: Request, before: PolicyRecord | None) -> tuple[str, Mapping[str, Any]]:
    """The kind and the configuration that a request wants.

    Raises:
        ApiError: it cannot be so.
    """
    kind = request.get("PolicyType")
    if kind is None:
        if before is None:
            raise invalid("PolicyType is required when a new scaling policy is made")
        kind = before.kind
    if kind not in MEMBERS:
        msg = f"PolicyType {kind} is not available for SageMaker endpoint variants; use {TRACKING} or {STEPPING}"
        raise invalid(msg)
    if before is not None and kind != before.kind:
        raise invalid(
            f"the policy '{before.name}' is of type {before.kind}, which cannot be changed; delete it before"
        )
    member = MEMBERS[kind]
    for other in (*MEMBERS.values(), "PredictiveScalingPolicyConfiguration"):
        if other != member and other in request:
            raise invalid(f"{other} is not for policies of type {kind}")
    if member not in request:
        if before is None:
            raise invalid(f"{member} is required for a policy of type {kind}")
        return kind, before.config
    config = request[member]
    if before is not None and kind == STEPPING:
        config = {**before.config, **config}
    check_config(kind, config)
    return kind, config
