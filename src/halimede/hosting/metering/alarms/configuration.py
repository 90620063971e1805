"""Puts, changes and deletes alarms, one request after the other. What is answered is on disk."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms import history
from halimede.hosting.metering.alarms.alarm import Alarm, name_of
from halimede.hosting.metering.alarms.alarm_file import Changes
from halimede.hosting.metering.alarms.composite import CompositeDefinition
from halimede.hosting.metering.alarms.documents import tags_of
from halimede.hosting.metering.alarms.journal import Journal
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.registry import Registry, children_of, suppressor_of
from halimede.hosting.metering.alarms.suppression import Suppression

_MAX_ALARMS = 5_000
"""Of an account in a region."""


class Configuration:
    """Configures alarms. Lives on the event loop."""

    def __init__(self, registry: Registry, journal: Journal, now: Callable[[], float]) -> None:
        self._registry = registry
        self._journal = journal
        self._now = now
        self._lock = asyncio.Lock()

    async def put(
        self,
        scope: Scope,
        document: Mapping[str, Any],
        definition: MetricDefinition | CompositeDefinition,
        tags: Sequence[Mapping[str, str]],
    ) -> tuple[Alarm, bool]:
        """Have an alarm, in place of the one of that name, whose state and tags it keeps: it, and whether it is new.

        Raises:
            ApiError: it cannot be so, or there are too many.
        """
        name, now = document["AlarmName"], self._now()
        alarm = Alarm(scope, name, document, definition, now, since=now, updated=now)
        async with self._lock:
            before = self._registry.find(scope, name)
            if before is not None and before.type is not alarm.type:
                raise refused(f"The alarm {name} exists and is a {before.type}; delete it before")
            self._check_composite(alarm)
            changes = Changes(now=now)
            if before is None:
                if len(self._registry.of(scope)) >= _MAX_ALARMS:
                    msg = f"The maximum limit of {_MAX_ALARMS} alarms has been reached"
                    raise ApiError("LimitExceeded", msg)
                alarm.tags = tags_of(tags, {})
                changes.history.append(history.created(alarm, now))
            else:
                _keep_state(alarm, before)
                changes.history.append(history.updated(alarm, before, now))
            changes.add(alarm)
            await self._journal.write(changes)
            if before is not None:
                _keep_state(alarm, before)  # it may have changed in the meantime
            self._registry.put(alarm)
        return alarm, before is None

    def _check_composite(self, alarm: Alarm) -> None:
        """Refuse a composite alarm that looks at alarms that there are not, or at itself."""
        scope, definition = alarm.scope, alarm.definition
        if not isinstance(definition, CompositeDefinition):
            return
        for condition in definition.rule.conditions:
            if name_of(scope, condition.alarm) is None:
                msg = f"AlarmRule: {condition.alarm} is no alarm of account {scope.account} in {scope.region}"
                raise refused(msg)
        children = children_of(alarm)
        if self._registry.leads_to(scope, children, alarm.name):
            raise refused(f"Could not save the composite alarm as its rule refers to {alarm.name} itself")
        missing = ", ".join(name for name in children if self._registry.find(scope, name) is None)
        if missing:
            raise refused(
                f"Could not save the composite alarm as alarms [{missing}] in the alarm rule do not exist"
            )
        suppressor = definition.suppressor
        if suppressor and name_of(scope, suppressor) == alarm.name:
            raise refused(f"The alarm {alarm.name} cannot be its own ActionsSuppressor")
        if suppressor and self._registry.find(scope, name_of(scope, suppressor) or "") is None:
            msg = f"Could not save the composite alarm as the ActionsSuppressor {suppressor} does not exist"
            raise refused(msg)

    async def delete(self, scope: Scope, names: Collection[str]) -> None:
        """Have alarms no more; names of none are passed over.

        Raises:
            ApiError: another composite alarm looks at one of them.
        """
        async with self._lock:
            alarms = self._registry.of(scope)
            found = [alarms[name] for name in dict.fromkeys(names) if name in alarms]
            for alarm in found:
                depending = [*self._registry.parents(alarm), *self._registry.suppressed_by(alarm)]
                if any(each.name not in names for each in depending):
                    msg = f"Cannot delete {alarm.name} as there are composite alarm(s) depending on it."
                    raise refused(msg)
            changes = Changes(now=self._now())
            for alarm in found:
                changes.remove(alarm)
                changes.history.append(history.deleted(alarm, changes.now))
            await self._journal.write(changes)
            for alarm in found:
                self._registry.remove(alarm)

    async def enable_actions(self, scope: Scope, names: Collection[str], *, enabled: bool) -> None:
        """Let alarms do what is to be done, or not; names of none are passed over."""
        async with self._lock:
            changes, changed = Changes(now=self._now()), []
            for name in dict.fromkeys(names):
                before = self._registry.find(scope, name)
                if before is None or before.document["ActionsEnabled"] is enabled:
                    continue
                document = {**before.document, "ActionsEnabled": enabled}
                alarm = Alarm(scope, name, document, before.definition, changes.now)
                _keep_state(alarm, before)
                changes.add(alarm)
                changes.history.append(history.updated(alarm, before, changes.now))
                changed.append((alarm, before))
            await self._journal.write(changes)
            for alarm, before in changed:
                _keep_state(alarm, before)
                self._registry.put(alarm)

    async def set_tags(self, scope: Scope, name: str, tags: Mapping[str, str]) -> None:
        """Let an alarm have tags, in place of those that it has."""
        async with self._lock:
            alarm = self._registry.find(scope, name)
            if alarm is None:  # it has just been deleted
                return
            changes = Changes(now=self._now())
            before, alarm.tags = alarm.tags, dict(tags)
            changes.add(alarm)
            try:
                await self._journal.write(changes)
            except ApiError:
                alarm.tags = before
                raise


def _keep_state(alarm: Alarm, before: Alarm) -> None:
    """Let an alarm be in the state of the one in whose place it is."""
    configured = alarm.configured
    alarm.restore(before.state_document())
    alarm.configured = configured
    alarm.evaluated, alarm.values, alarm.failure = before.evaluated, before.values, before.failure
    alarm.tags = before.tags
    if not (
        suppressor_of(alarm) and suppressor_of(before)
    ):  # what was suppressed before is not done any more
        alarm.suppression = Suppression(acted=alarm.state)
