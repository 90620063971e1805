"""Evaluates all metric alarms: when it is time, one after the other, with the loop left to others in between.

A period is evaluated a little after it has ended, when what was measured of it is there. Periods that were missed are
not made up for.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from halimede.hosting.metering.alarms.actions import Actions
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType
from halimede.hosting.metering.alarms.consequences import Consequences, Round
from halimede.hosting.metering.alarms.evaluation import evaluate
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.registry import Registry
from halimede.hosting.metering.store import MetricStores

logger = logging.getLogger("halimede")

_LAG_S = 2.0
"""So long after its end a period is evaluated, or a tenth of it if that is less."""

_SETBACK = 5
"""A clock that goes back is waited for, unless it is by more than so many periods."""

_TURN_S = 0.002
"""So long alarms are evaluated before others have their turn on the event loop."""


class Evaluator:
    """Evaluates. Lives on the event loop.

    Attributes:
        evaluated: the end of the last period that was evaluated, in seconds since 1970; 0 if none was.
        has_new: there may be alarms that have not been evaluated for it.
    """

    def __init__(
        self, registry: Registry, stores: MetricStores, actions: Actions, consequences: Consequences
    ) -> None:
        self.evaluated = 0
        self.has_new = False
        self._registry = registry
        self._stores = stores
        self._actions = actions
        self._consequences = consequences

    async def tick(self, now: float) -> None:
        """Evaluate what is to be evaluated by now, in seconds since 1970; once a second."""
        length = self._stores.resolution
        end = int((now - min(_LAG_S, length / 10)) // length) * length
        if end < self.evaluated:
            if self.evaluated - end <= _SETBACK * length:
                return
            logger.warning("the clock went back by %d s; alarms are evaluated anew", self.evaluated - end)
            for alarm in self._registry.all():
                alarm.evaluated = min(alarm.evaluated, end - length)
        elif end == self.evaluated and not self.has_new:
            return
        self.has_new = False
        due = [
            alarm
            for alarm in self._registry.all()
            if alarm.evaluated < end and alarm.type is AlarmType.METRIC
        ]
        over = Round(now)
        over.changes.evaluated = self.evaluated = end
        same = await self._evaluate(due, end, over)
        await self._consequences.draw(over)
        for alarm in same:
            if self._registry.find(alarm.scope, alarm.name) is alarm:
                self._actions.repeat(alarm, now)

    async def _evaluate(self, due: Sequence[Alarm], end: int, over: Round) -> list[Alarm]:
        """Evaluate alarms: those that stay in their states."""
        same = []
        begun = time.perf_counter()
        for alarm in due:
            definition = alarm.definition
            assert isinstance(definition, MetricDefinition)
            store = self._stores.find(alarm.scope)
            outcome = await evaluate(definition, alarm.state, store, end, over.changes.now)
            if time.perf_counter() - begun > _TURN_S:
                await asyncio.sleep(0)
                begun = time.perf_counter()
            if (
                self._registry.find(alarm.scope, alarm.name) is not alarm
            ):  # it was put anew or deleted meanwhile
                self.has_new = True
                continue
            alarm.evaluated, alarm.values, alarm.failure = end, outcome.values, outcome.failure
            if outcome.state is alarm.state:
                same.append(alarm)
            else:
                over.set_state(
                    alarm,
                    outcome.state,
                    outcome.reason,
                    outcome.reason_data,
                    outcome.values,
                    definition.threshold,
                )
        return same
