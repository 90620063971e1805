"""All alarms of the host.

every second    alarms that are new are evaluated
every minute    all others are: a little after it has ended, when what was measured of it is there

A minute is what AWS's takes at the host's pace. A new state is written down before anything is done because of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.actions import Actions, Run, threshold_of
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType, arn_of
from halimede.hosting.metering.alarms.alarm_file import HistoryQuery, StoredAlarm
from halimede.hosting.metering.alarms.composite import CompositeDefinition, composite_definition
from halimede.hosting.metering.alarms.configuration import Configuration
from halimede.hosting.metering.alarms.consequences import Consequences, Round
from halimede.hosting.metering.alarms.documents import complete
from halimede.hosting.metering.alarms.evaluator import Evaluator
from halimede.hosting.metering.alarms.history import HistoryItem
from halimede.hosting.metering.alarms.journal import Journal
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition, metric_definition
from halimede.hosting.metering.alarms.registry import Registry
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import MetricStores

logger = logging.getLogger("halimede")

_SECOND = 1.0


class Alarms:
    """The alarms. Lives on the event loop; the file is read and written on another thread.

    Attributes:
        registry: all of them.
        configuration: what changes them.
    """

    def __init__(
        self,
        path: Path,
        stores: MetricStores,
        now: Callable[[], float] = time.time,
        pace: Pace = Pace(),  # noqa: B008 - never changes
    ) -> None:
        """Nothing is evaluated before `start`.

        Args:
            path: the file of alarms.
            stores: all metrics, whose resolution is what AWS's minute takes at the pace.
            now: the time, in seconds since 1970.
            pace: how long AWS's periods take here.
        """
        self._now = now
        self._pace = pace
        self._journal = Journal(path)
        self._actions = Actions()
        self.registry = Registry()
        self.configuration = Configuration(self.registry, self._journal, now)
        self._consequences = Consequences(self.registry, self._actions, self._journal)
        self._evaluator = Evaluator(self.registry, stores, self._actions, self._consequences)
        self._evaluating = asyncio.Lock()
        self._ticking = EachSecond("evaluating alarms", self.tick, self._pause_s)

    async def start(self) -> None:
        """Read what was there before, and call `tick` each second from now on.

        Raises:
            sqlite3.Error: there cannot be a file of alarms.
        """
        await self.open()
        self._ticking.start()

    async def open(self) -> None:
        """Read what was there before.

        Raises:
            sqlite3.Error: there cannot be a file of alarms.
        """
        stored, self._evaluator.evaluated = await self._journal.load()
        for each in stored:
            self._restore(each)

    def _restore(self, stored: StoredAlarm) -> None:
        document = stored.document
        try:
            if stored.type is AlarmType.METRIC:
                definition: MetricDefinition | CompositeDefinition = metric_definition(document, self._pace)
            else:
                definition = composite_definition(document, self._pace)
        except ApiError as error:
            logger.error("alarm '%s' is not there any more: %s", stored.name, error.message)
            return
        alarm = Alarm(stored.scope, stored.name, document, definition, 0.0, tags=dict(stored.tags))
        alarm.restore(stored.state)
        alarm.evaluated = self._evaluator.evaluated
        self.registry.put(alarm)

    async def stop(self) -> None:
        """Evaluate no more."""
        await self._ticking.stop()
        await self._journal.close(self._now())

    def add_action(self, prefix: str, run: Run) -> None:
        """Let actions whose ARNs begin with a prefix be run by something, on the event loop."""
        self._actions.add(prefix, run)

    def find(self, scope: Scope, name: str) -> Alarm | None:
        """The alarm of a name; once it has been put again, it is another object."""
        return self.registry.find(scope, name)

    def with_action(self, scope: Scope, arn: str) -> list[str]:
        """The names of the alarms that have an action, in any of their states."""
        return sorted(alarm.name for alarm in self.registry.of(scope).values() if arn in alarm.all_actions)

    async def put(self, scope: Scope, request: Mapping[str, Any]) -> None:
        """Have a metric alarm, in place of the one of that name, whose state it keeps.

        Args:
            scope: its account and region.
            request: PutMetricAlarm's.

        Raises:
            ApiError: it cannot be so, or there are too many.
        """
        definition = metric_definition(request, self._pace)
        document = complete(request, scope, scales=True)
        if definition.metric is not None:
            document.setdefault("Dimensions", [])
        await self.configuration.put(scope, document, definition, request.get("Tags", ()))
        self._evaluator.has_new = True

    async def put_composite(self, scope: Scope, request: Mapping[str, Any]) -> None:
        """Have a composite alarm, in place of the one of that name.

        Args:
            scope: its account and region.
            request: PutCompositeAlarm's.

        Raises:
            ApiError: it cannot be so, or there are too many.
        """
        definition = composite_definition(request, self._pace)
        document = complete(request, scope, scales=False)
        alarm, is_new = await self.configuration.put(scope, document, definition, request.get("Tags", ()))
        async with self._evaluating:
            state = self.registry.rule_state(alarm)
            if state is not alarm.state:
                verb = "created" if is_new else "updated"
                over = Round(self._now())
                over.set_state(
                    alarm, state, f"{alarm.arn} was {verb} and its alarm rule evaluates to {state}"
                )
                await self._consequences.draw(over)

    async def delete(self, scope: Scope, names: Collection[str]) -> None:
        """Have alarms no more; names of none are passed over.

        Raises:
            ApiError: another composite alarm looks at one of them.
        """
        await self.configuration.delete(scope, names)

    async def set_state(
        self, scope: Scope, name: str, state: AlarmState, reason: str, reason_data: str = ""
    ) -> None:
        """Put an alarm into a state, until it is evaluated again.

        Raises:
            ApiError: there is no such alarm, or the data are no JSON object.
        """
        alarm = self.find(scope, name)
        if alarm is None:
            raise ApiError("ResourceNotFound", f"There is no alarm {arn_of(scope, name)}", 404)
        details = _details(reason_data)
        if state is alarm.state:
            return
        recent, threshold = details.get("recentDatapoints"), details.get("threshold")
        values = alarm.values
        if isinstance(recent, list):
            values = tuple(float(each) for each in reversed(recent) if isinstance(each, (int, float)))
        if not isinstance(threshold, (int, float)):
            threshold = threshold_of(alarm)
        async with self._evaluating:  # else an evaluation might change the state before its actions are done
            over = Round(self._now())
            over.set_state(alarm, state, reason, reason_data, values, threshold)
            await self._consequences.draw(over)

    async def tick(self) -> None:
        """What is done each second."""
        async with self._evaluating:
            now = self._now()
            await self._consequences.end_suppressions(now)
            await self._evaluator.tick(now)

    async def history(self, query: HistoryQuery) -> list[HistoryItem]:
        """What has happened to alarms, also to those that are no more.

        Raises:
            ApiError: it cannot be read (``InternalServiceError``).
        """
        return await self._journal.history(query)

    def _pause_s(self) -> float:
        """Half a second after the whole one, on which metrics of the second before come into the store."""
        return _SECOND - (self._now() - _SECOND / 2) % _SECOND


def _details(reason_data: str) -> Mapping[str, Any]:
    """What the data of a reason say.

    Raises:
        ApiError: they are no JSON object (``InvalidFormat``).
    """
    try:
        details = orjson.loads(reason_data) if reason_data else {}
    except orjson.JSONDecodeError as error:
        raise ApiError("InvalidFormat", f"StateReasonData is not JSON: {error}") from None
    if not isinstance(details, dict):
        raise ApiError("InvalidFormat", "StateReasonData is not a JSON object")
    return details
