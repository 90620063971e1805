"""All alarms, by account, region and name, and which composite alarms look at which others."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.alarm import Alarm, name_of
from halimede.hosting.metering.alarms.composite import CompositeDefinition
from halimede.hosting.metering.alarms.states import AlarmState


class Registry:
    """The alarms."""

    def __init__(self) -> None:
        self._alarms: dict[Scope, dict[str, Alarm]] = {}
        self._parents: dict[tuple[Scope, str], set[str]] = defaultdict(set)
        self._suppressed: dict[tuple[Scope, str], set[str]] = defaultdict(set)

    def find(self, scope: Scope, name: str) -> Alarm | None:
        """The alarm of a name."""
        return self._alarms.get(scope, {}).get(name)

    def of(self, scope: Scope) -> Mapping[str, Alarm]:
        """The alarms of an account and region, by name."""
        return self._alarms.get(scope, {})

    def all(self) -> Iterator[Alarm]:
        """All of them."""
        return (alarm for alarms in self._alarms.values() for alarm in alarms.values())

    def put(self, alarm: Alarm) -> None:
        """Have an alarm, in place of the one of that name."""
        self.remove(alarm)
        self._alarms.setdefault(alarm.scope, {})[alarm.name] = alarm
        for child in children_of(alarm):
            self._parents[alarm.scope, child].add(alarm.name)
        if suppressor := suppressor_of(alarm):
            self._suppressed[alarm.scope, suppressor].add(alarm.name)

    def remove(self, alarm: Alarm) -> None:
        """Have an alarm no more."""
        before = self._alarms.get(alarm.scope, {}).pop(alarm.name, None)
        if before is None:
            return
        for child in children_of(before):
            _discard(self._parents, (alarm.scope, child), alarm.name)
        if suppressor := suppressor_of(before):
            _discard(self._suppressed, (alarm.scope, suppressor), alarm.name)

    def parents(self, alarm: Alarm) -> Sequence[Alarm]:
        """The composite alarms whose rules say something of an alarm."""
        names = sorted(self._parents.get((alarm.scope, alarm.name), ()))
        return [self._alarms[alarm.scope][name] for name in names]

    def suppressed_by(self, alarm: Alarm) -> Sequence[Alarm]:
        """The composite alarms whose suppressor is an alarm."""
        names = sorted(self._suppressed.get((alarm.scope, alarm.name), ()))
        return [self._alarms[alarm.scope][name] for name in names]

    def with_suppressor(self) -> list[Alarm]:
        """All composite alarms that have a suppressor."""
        return [self._alarms[scope][name] for (scope, _), names in self._suppressed.items() for name in names]

    def above(self, alarms: Iterable[Alarm]) -> list[Alarm]:
        """The composite alarms whose state may follow from some alarms', each after those that it looks at."""
        graph: dict[tuple[Scope, str], set[tuple[Scope, str]]] = {}
        waiting = list(alarms)
        while waiting:
            child = waiting.pop()
            for parent in self.parents(child):
                key = (parent.scope, parent.name)
                if key not in graph:
                    graph[key] = set()
                    waiting.append(parent)
                graph[key].add((child.scope, child.name))
        order = TopologicalSorter(graph).static_order()
        return [self._alarms[scope][name] for scope, name in order if (scope, name) in graph]

    def leads_to(self, scope: Scope, begin: Iterable[str], name: str) -> bool:
        """Whether some alarms, or those that they look at, are the alarm of a name."""
        seen: set[str] = set()
        waiting = list(begin)
        while waiting:
            each = waiting.pop()
            if each == name:
                return True
            alarm = self.find(scope, each)
            if each not in seen and alarm is not None:
                seen.add(each)
                waiting += children_of(alarm)
        return False

    def rule_state(self, alarm: Alarm) -> AlarmState:
        """The state that a composite alarm's rule puts it into."""
        assert isinstance(alarm.definition, CompositeDefinition)

        def state_of(reference: str) -> AlarmState | None:
            child = self.find(alarm.scope, name_of(alarm.scope, reference) or "")
            return None if child is None else child.state

        return AlarmState.ALARM if alarm.definition.rule.holds(state_of) else AlarmState.OK


def _discard(index: dict[tuple[Scope, str], set[str]], key: tuple[Scope, str], name: str) -> None:
    index[key].discard(name)
    if not index[key]:
        del index[key]


def suppressor_of(alarm: Alarm) -> str:
    """The name of the alarm that suppresses a composite alarm's actions; "" if none does."""
    if not isinstance(alarm.definition, CompositeDefinition):
        return ""
    return name_of(alarm.scope, alarm.definition.suppressor) or ""


def children_of(alarm: Alarm) -> list[str]:
    """The names of the alarms that a composite alarm's rule says something of; none of a metric alarm."""
    if not isinstance(alarm.definition, CompositeDefinition):
        return []
    names = {name_of(alarm.scope, each.alarm) for each in alarm.definition.rule.conditions}
    return sorted(name for name in names if name is not None)
