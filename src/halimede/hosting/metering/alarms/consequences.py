"""What comes of new states: composite alarms follow, states are written down, and then actions run."""

from collections.abc import Sequence

from halimede.hosting.metering.alarms import history
from halimede.hosting.metering.alarms.actions import Actions
from halimede.hosting.metering.alarms.alarm import Alarm
from halimede.hosting.metering.alarms.alarm_file import Changes
from halimede.hosting.metering.alarms.composite import CompositeDefinition
from halimede.hosting.metering.alarms.journal import Journal
from halimede.hosting.metering.alarms.reasons import composite_reason, composite_reason_data
from halimede.hosting.metering.alarms.registry import Registry, children_of, suppressor_of
from halimede.hosting.metering.alarms.states import AlarmState

Acting = tuple[Alarm, tuple[float, ...], float | None]
"""An alarm because of which something is to be done, and the datapoints and the threshold that led to its state."""


class Round:
    """Alarms that change their states together.

    Attributes:
        changes: what is to be written.
        changed: the alarms.
    """

    def __init__(self, now: float) -> None:
        self.changes = Changes(now=now)
        self.changed: list[Acting] = []

    def set_state(
        self,
        alarm: Alarm,
        state: AlarmState,
        reason: str,
        reason_data: str = "",
        values: tuple[float, ...] = (),
        threshold: float | None = None,
    ) -> None:
        """Put an alarm into another state."""
        now = self.changes.now
        old = history.state_of(alarm)
        alarm.state, alarm.reason, alarm.reason_data = state, reason, reason_data
        alarm.since = alarm.updated = now
        if state is AlarmState.ALARM:
            alarm.alarmed = now
        self.changes.history.append(history.changed(alarm, old, now))
        self.changes.set_state(alarm)
        self.changed.append((alarm, values, threshold))


class Consequences:
    """Draws them. Lives on the event loop."""

    def __init__(self, registry: Registry, actions: Actions, journal: Journal) -> None:
        self._registry = registry
        self._actions = actions
        self._journal = journal

    async def draw(self, over: Round) -> None:
        """Let everything follow from new states."""
        self._let_composites_follow(over)
        acting = self._not_suppressed(over)
        await self._act(over.changes, acting)

    def _let_composites_follow(self, over: Round) -> None:
        changed = {(alarm.scope, alarm.name): alarm for alarm, _, _ in over.changed}
        for alarm in self._registry.above(changed.values()):
            state = self._registry.rule_state(alarm)
            if state is not alarm.state:
                keys = [(alarm.scope, name) for name in children_of(alarm)]
                [cause, *_] = [changed[key] for key in keys if key in changed]
                trigger = (cause.arn, cause.state, cause.since)
                over.set_state(alarm, state, composite_reason(*trigger), composite_reason_data(*trigger))
                changed[alarm.scope, alarm.name] = alarm

    def _not_suppressed(self, over: Round) -> list[Acting]:
        """What is to be done now; what is suppressed is noted."""
        now = over.changes.now
        acting: list[Acting] = []
        for suppressor, _, _ in over.changed:
            for alarm in self._registry.suppressed_by(suppressor):
                extension_s = _definition(alarm).extension_s
                if alarm.suppression.suppressor_changed(alarm.state, suppressor.state, extension_s, now):
                    acting.append((alarm, (), None))
                over.changes.set_state(alarm)
        for each in over.changed:
            alarm = each[0]
            name = suppressor_of(alarm)
            if not name:
                acting.append(each)
                continue
            found = self._registry.find(alarm.scope, name)
            state = None if found is None else found.state
            if alarm.suppression.state_changed(alarm.state, state, _definition(alarm).wait_s, now):
                acting.append(each)
            else:
                over.changes.history.append(history.suppressed(alarm, now))
            over.changes.set_state(alarm)
        return acting

    async def end_suppressions(self, now: float) -> None:
        """Do what was suppressed for some time that is over."""
        changes = Changes(now=now)
        acting: list[Acting] = []
        for alarm in self._registry.with_suppressor():
            before, definition = alarm.suppression.by, _definition(alarm)
            longest_s = max(definition.wait_s, definition.extension_s)
            if alarm.suppression.time_passed(alarm.state, longest_s, now):
                acting.append((alarm, (), None))
            if alarm.suppression.by is not before:
                changes.set_state(alarm)
        if changes.states:
            await self._act(changes, acting)

    async def _act(self, changes: Changes, acting: Sequence[Acting]) -> None:
        """Write down what has changed, and do what is to be done."""
        await self._journal.note(changes)
        done = Changes(now=changes.now)
        for alarm, values, threshold in acting:
            done.history += self._actions.run(alarm, values, threshold, done.now)
        if done.history:
            await self._journal.note(done)


def _definition(alarm: Alarm) -> CompositeDefinition:
    assert isinstance(alarm.definition, CompositeDefinition)
    return alarm.definition
