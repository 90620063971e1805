"""What autoscaling knows: targets, policies, scheduled actions and activities, in a file of its own.

A change is on disk before it is here, and here before it is acted on.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from halimede.hosting.control.database import Database, DocumentKey
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.scaling.activities import Activities
from halimede.hosting.scaling.names import VariantId
from halimede.hosting.scaling.records import ActionRecord, PolicyRecord, Target

_TARGET, _POLICY, _ACTION = "scalable-target", "scaling-policy", "scheduled-action"


class ScalingState:
    """All of it. Lives on the event loop.

    Attributes:
        targets: variants that are scaled.
        activities: what has been done.
        changing: whoever changes something holds it.
    """

    def __init__(self, path: Path) -> None:
        """What is in a file, which is read by `open`."""
        self._database = Database(path)
        self._policies: dict[VariantId, dict[str, PolicyRecord]] = {}
        self._actions: dict[VariantId, dict[str, ActionRecord]] = {}
        self._by_arn: dict[str, PolicyRecord] = {}
        self.targets: dict[VariantId, Target] = {}
        self.activities = Activities(self._database)
        self.changing = asyncio.Lock()

    async def open(self) -> None:
        """Read what is there.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._database.open()
        for key, document in (await self._database.documents(_TARGET)).items():
            variant = VariantId.of(key.scope, key.name)
            self.targets[variant] = Target.from_document(variant, document)
        for key, document in (await self._database.documents(_POLICY)).items():
            self._keep_policy(PolicyRecord.from_document(_variant_of(key), document))
        for key, document in (await self._database.documents(_ACTION)).items():
            action = ActionRecord.from_document(_variant_of(key), document)
            self._actions.setdefault(action.variant, {})[action.name] = action
        await self.activities.load()

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._database.close()

    # targets

    def targets_of(self, scope: Scope) -> list[Target]:
        """Those of an account and region, by name."""
        found = [target for variant, target in self.targets.items() if variant.scope == scope]
        return sorted(found, key=lambda target: target.variant)

    async def add_target(self, target: Target, tags: Mapping[str, str]) -> None:
        """Keep a new target with its tags."""
        await self._database.add(_key(_TARGET, target.variant), target.document(), target.arn, tags)
        self.targets[target.variant] = target

    async def put_target(self, target: Target) -> None:
        """Keep what has become of a target."""
        await self._database.put(_key(_TARGET, target.variant), target.document())
        self.targets[target.variant] = target

    async def remove_target(self, target: Target) -> None:
        """Forget a target with its policies and scheduled actions.

        It is not here any more when this begins to wait, and what is written later is written after that.

        Raises:
            ApiError: that cannot be written; all of it is here again.
        """
        variant = target.variant
        policies, actions = self._policies.pop(variant, {}), self._actions.pop(variant, {})
        for policy in policies.values():
            del self._by_arn[policy.arn]
        del self.targets[variant]
        parts = (
            *(_key(_POLICY, variant, name) for name in policies),
            *(_key(_ACTION, variant, name) for name in actions),
        )
        try:
            await self._database.remove(_key(_TARGET, variant), target.arn, *parts)
        except ApiError:
            self.targets[variant] = target
            for policy in policies.values():
                self._keep_policy(policy)
            self._actions[variant] = actions
            raise

    # tags

    async def tags(self, arn: str) -> dict[str, str]:
        """The tags of a target."""
        return await self._database.tags(arn)

    async def put_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to a target."""
        await self._database.put_tags(arn, tags)

    async def remove_tags(self, arn: str, keys: list[str]) -> None:
        """Take tags from a target."""
        await self._database.remove_tags(arn, keys)

    # policies

    def policies(self, variant: VariantId) -> Mapping[str, PolicyRecord]:
        """The policies of a variant, by name."""
        return self._policies.get(variant, {})

    def policies_of(self, scope: Scope) -> Iterator[PolicyRecord]:
        """Those of an account and region, by variant and name."""
        for target in self.targets_of(scope):
            policies = self.policies(target.variant)
            yield from (policies[name] for name in sorted(policies))

    def policy(self, arn: str) -> PolicyRecord | None:
        """The policy with an ARN."""
        return self._by_arn.get(arn)

    def _keep_policy(self, policy: PolicyRecord) -> None:
        self._policies.setdefault(policy.variant, {})[policy.name] = policy
        self._by_arn[policy.arn] = policy

    async def put_policy(self, policy: PolicyRecord) -> None:
        """Keep a policy."""
        await self._database.put(_key(_POLICY, policy.variant, policy.name), policy.document())
        self._keep_policy(policy)

    async def remove_policy(self, policy: PolicyRecord) -> None:
        """Forget a policy."""
        await self._database.remove(_key(_POLICY, policy.variant, policy.name), "")
        del self._policies[policy.variant][policy.name]
        del self._by_arn[policy.arn]

    # scheduled actions

    def actions(self, variant: VariantId) -> Mapping[str, ActionRecord]:
        """The scheduled actions of a variant, by name."""
        return self._actions.get(variant, {})

    def actions_of(self, scope: Scope) -> Iterator[ActionRecord]:
        """Those of an account and region, by variant and name."""
        for target in self.targets_of(scope):
            actions = self.actions(target.variant)
            yield from (actions[name] for name in sorted(actions))

    def all_actions(self) -> list[ActionRecord]:
        """Those of all accounts."""
        return [action for actions in self._actions.values() for action in actions.values()]

    async def put_action(self, action: ActionRecord) -> None:
        """Keep a scheduled action."""
        await self._database.put(_key(_ACTION, action.variant, action.name), action.document())
        self._actions.setdefault(action.variant, {})[action.name] = action

    async def remove_action(self, action: ActionRecord) -> None:
        """Forget a scheduled action."""
        await self._database.remove(_key(_ACTION, action.variant, action.name), "")
        del self._actions[action.variant][action.name]


def _key(kind: str, variant: VariantId, part: str = "") -> DocumentKey:
    name = f"{variant.resource}/{part}" if part else variant.resource
    return DocumentKey(kind, *variant.scope, name)


def _variant_of(key: DocumentKey) -> VariantId:
    """Whose part a document is kept as."""
    return VariantId.of(key.scope, "/".join(key.name.split("/")[:4]))
