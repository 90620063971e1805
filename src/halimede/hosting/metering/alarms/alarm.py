"""An alarm: how it is configured, and which state it is in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.composite import CompositeDefinition
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.metering.alarms.suppression import Suppression

_ACTIONS = {
    AlarmState.OK: "OKActions",
    AlarmState.ALARM: "AlarmActions",
    AlarmState.INSUFFICIENT_DATA: "InsufficientDataActions",
}

CREATED = "Unchecked: Initial alarm creation"
"""The reason of an alarm's first state."""


class AlarmType(StrEnum):
    """Kinds of alarms, as CloudWatch calls them."""

    METRIC = "MetricAlarm"
    COMPOSITE = "CompositeAlarm"


@dataclass(slots=True)
class Alarm:
    """An alarm. Times are in seconds since 1970.

    Attributes:
        scope: the account and region in which its name holds.
        name: its name.
        document: the request that it was put with, with AWS's defaults and without tags.
        definition: what the document says.
        configured: when the document last changed.
        state: its state.
        reason: why it is in the state.
        reason_data: the same as JSON; "" for none.
        since: when the state last changed.
        alarmed: when it last went to ALARM, since the host was started.
        updated: when the state, its reason or their data were last set.
        failure: why it cannot be evaluated; "" if it can.
        evaluated: the end of the last period for which it was evaluated; 0 for never.
        values: the datapoints that the last evaluation looked at, the latest first.
        suppression: whether its actions are suppressed; only a composite alarm's can be.
        tags: key → value.
    """

    scope: Scope
    name: str
    document: Mapping[str, Any]
    definition: MetricDefinition | CompositeDefinition
    configured: float
    state: AlarmState = AlarmState.INSUFFICIENT_DATA
    reason: str = CREATED
    reason_data: str = ""
    since: float = 0.0
    updated: float = 0.0
    failure: str = ""
    evaluated: int = 0
    values: tuple[float, ...] = ()
    suppression: Suppression = field(default_factory=Suppression)
    alarmed: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def type(self) -> AlarmType:
        """Which kind of alarm it is."""
        return AlarmType.METRIC if isinstance(self.definition, MetricDefinition) else AlarmType.COMPOSITE

    @property
    def arn(self) -> str:
        """Its ARN."""
        return arn_of(self.scope, self.name)

    @property
    def actions(self) -> Sequence[str]:
        """ARNs of what is to be done in its state; none if its actions are disabled."""
        if not self.document["ActionsEnabled"]:
            return ()
        actions: Sequence[str] = self.document[_ACTIONS[self.state]]
        return actions

    @property
    def all_actions(self) -> list[str]:
        """ARNs of what is to be done in any state, whether its actions are enabled or not."""
        return [arn for member in _ACTIONS.values() for arn in self.document[member]]

    def state_document(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {
            "state": self.state,
            "reason": self.reason,
            "reason_data": self.reason_data,
            "since": self.since,
            "updated": self.updated,
            "configured": self.configured,
            "suppression": self.suppression.document(),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Be in the state that `state_document` said."""
        self.state = AlarmState(document["state"])
        self.reason, self.reason_data = document["reason"], document["reason_data"]
        self.since, self.updated = document["since"], document["updated"]
        self.configured = document["configured"]
        self.suppression = Suppression.of(document["suppression"])


def arn_of(scope: Scope, name: str) -> str:
    """The ARN of an alarm."""
    return f"arn:aws:cloudwatch:{scope.region}:{scope.account}:alarm:{name}"


def name_of(scope: Scope, reference: str) -> str | None:
    """The name of the alarm that a name or ARN stands for; None for an ARN of anything else, or of another scope."""
    if not reference.startswith("arn:"):
        return reference
    lead = arn_of(scope, "")
    return reference.removeprefix(lead) if reference.startswith(lead) else None


@dataclass(frozen=True, slots=True)
class AlarmAction:
    """Something that is to be done because of an alarm.

    Attributes:
        scope: the alarm's.
        arn: what is to be done.
        alarm: the alarm's name.
        state: the state that it is in.
        value: its latest datapoint; None if there is none.
        threshold: what its datapoints are compared with; None for a composite alarm.
        when: the time, in seconds since 1970.
        values: the datapoints that were evaluated, the latest first.
    """

    scope: Scope
    arn: str
    alarm: str
    state: AlarmState
    value: float | None
    threshold: float | None
    when: float
    values: tuple[float, ...] = ()
