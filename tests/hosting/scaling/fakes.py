"""What autoscaling needs of the host, as a test wants it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from halimede.hosting.capacity import VariantCapacity
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId, Scope


class State(StrEnum):
    """States of alarms."""

    OK = "OK"
    ALARM = "ALARM"


@dataclass
class FakeAlarm:
    """An alarm."""

    request: Mapping[str, Any]
    state: State = State.OK


@dataclass(frozen=True)
class FakeAction:
    """What an alarm has done."""

    scope: Scope
    arn: str
    alarm: str
    state: State
    threshold: float | None
    values: tuple[float, ...]


class FakeAlarms:
    """Alarms that are in the states which the test says.

    Attributes:
        alarms: scope and name → the alarm.
        refusal: what making one fails with.
        deletion: what deleting some fails with.
    """

    def __init__(self) -> None:
        self.alarms: dict[tuple[Scope, str], FakeAlarm] = {}
        self.refusal: ApiError | None = None
        self.deletion: ApiError | None = None
        self._run: Callable[[Any], None]

    async def put(self, scope: Scope, request: Mapping[str, Any]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.alarms[scope, request["AlarmName"]] = FakeAlarm(request)

    async def delete(self, scope: Scope, names: Collection[str]) -> None:
        if self.deletion is not None:
            raise self.deletion
        for name in names:
            self.alarms.pop((scope, name), None)

    def find(self, scope: Scope, name: str) -> FakeAlarm | None:
        return self.alarms.get((scope, name))

    def with_action(self, scope: Scope, arn: str) -> Sequence[str]:
        return [
            name
            for (of, name), alarm in self.alarms.items()
            if of == scope and arn in alarm.request["AlarmActions"]
        ]

    def add_action(self, prefix: str, run: Callable[[Any], None]) -> None:
        assert prefix == "arn:aws:autoscaling:"
        self._run = run

    def evaluate(self, scope: Scope, name: str, *values: float, state: State = State.ALARM) -> None:
        """The alarm has looked at values, the last one last, and is in a state."""
        alarm = self.alarms[scope, name]
        alarm.state = state
        for arn in alarm.request["AlarmActions"]:
            self._run(FakeAction(scope, arn, name, state, alarm.request["Threshold"], values[::-1]))


@dataclass
class FakeVariant:
    """A variant.

    Attributes:
        desired: how many instances it is to have.
        running: how many it has.
        settled: its endpoint is in service.
        room: so many instances fit.
        reason: why the last change did not come about.
        refusal: what a change fails with.
        type: of its instances.
        is_gone: its endpoint is being deleted.
        least: so many instances it must have.
    """

    desired: int = 1
    running: int = 1
    settled: bool = True
    room: int = 1000
    reason: str = ""
    refusal: ApiError | None = None
    type: str = "ml.local.cpu"
    is_gone: bool = False
    least: int = 1
    set_to: list[int] = field(default_factory=list)

    def settle(self) -> None:
        """What was begun has been done, or has failed."""
        if self.settled:
            return
        self.settled = True
        if self.desired > self.room:
            self.desired, self.reason = self.running, "there is no room for another instance"
        self.running = self.desired


class FakeVariants:
    """Variants of endpoints.

    Attributes:
        variants: endpoint and variant → it.
    """

    def __init__(self) -> None:
        self.variants: dict[tuple[EndpointId, str], FakeVariant] = {}

    def capacity(self, endpoint: EndpointId, variant: str) -> VariantCapacity | None:
        found = self.variants.get((endpoint, variant))
        if found is None or found.is_gone:
            return None
        return VariantCapacity(
            found.desired,
            found.running,
            found.settled,
            found.type,
            found.reason if found.settled else "",
            found.least,
        )

    async def set_count(self, endpoint: EndpointId, variant: str, count: int) -> None:
        found = self.variants[endpoint, variant]
        if not found.settled:
            raise invalid(f'Cannot update in-progress endpoint "{endpoint.name}".')
        if found.refusal is not None:
            raise found.refusal
        found.desired, found.settled, found.reason = count, False, ""
        found.set_to.append(count)
