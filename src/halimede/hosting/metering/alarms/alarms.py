"""All alarms of the host: put, evaluated, and acted on.

every second    alarms that are new are evaluated
every minute    all others are: a little after it has ended, when what was measured of it is there

A minute is what AWS's takes at the host's pace. A new state is written down before anything is done because of it.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms import history
from halimede.hosting.metering.alarms.actions import Actions, Run, threshold_of
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType, arn_of, name_of
from halimede.hosting.metering.alarms.alarm_file import AlarmFile, Changes, HistoryQuery, StoredAlarm
from halimede.hosting.metering.alarms.composite import CompositeDefinition, composite_definition
from halimede.hosting.metering.alarms.documents import complete, tags_of
from halimede.hosting.metering.alarms.evaluation import evaluate
from halimede.hosting.metering.alarms.history import HistoryItem
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition, metric_definition
from halimede.hosting.metering.alarms.reasons import composite_reason, composite_reason_data
from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.registry import Registry, children_of
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import MetricStores

logger = logging.getLogger("halimede")

_SECOND = 1.0
_LAG_S = 2.0
"""So long after its end a period is evaluated, or a tenth of it if that is less."""

_SETBACK = 5
"""A clock that goes back is waited for, unless it is by more than so many periods."""

_TURN_S = 0.002
"""So long alarms are evaluated before others have their turn on the event loop."""

_MAX_ALARMS = 5_000
"""Of an account in a region."""

_MAX_UNWRITTEN = 10_000
"""So many items of history are kept while the file cannot be written."""

Result = TypeVar("Result")


class _Round:
    """What comes of some alarms: what is to be written, and what is to be done.

    Attributes:
        changes: what is to be written.
        acting: alarms with a new state, and the datapoints and the threshold that led to it.
    """

    def __init__(self, now: float) -> None:
        self.changes = Changes(now=now)
        self.acting: list[tuple[Alarm, tuple[float, ...], float | None]] = []

    def set_state(
        self,
        alarm: Alarm,
        state: AlarmState,
        reason: str,
        reason_data: str,
        values: tuple[float, ...],
        threshold: float | None,
    ) -> None:
        """Put an alarm into another state."""
        now = self.changes.now
        old = history.state_of(alarm)
        alarm.state, alarm.reason, alarm.reason_data = state, reason, reason_data
        alarm.since = alarm.updated = now
        self.changes.history.append(history.changed(alarm, old, now))
        self.changes.set_state(alarm)
        self.acting.append((alarm, values, threshold))


class Alarms:
    """The alarms. Lives on the event loop; the file is read and written on another thread."""

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
            stores: all metrics.
            now: the time, in seconds since 1970.
            pace: how long AWS's periods take here.
        """
        self.registry = Registry()
        self._file = AlarmFile(path)
        self._stores = stores
        self._now = now
        self._pace = pace
        self._actions = Actions()
        self._thread = ThreadPoolExecutor(1, "halimede-alarms")
        self._configuring = asyncio.Lock()
        self._evaluating = asyncio.Lock()
        self._evaluated = 0
        self._has_new = False
        self._unwritten = Changes()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what was there before, and begin to evaluate.

        Raises:
            sqlite3.Error: there cannot be a file of alarms.
        """
        stored, self._evaluated = await self._run(self._file.load)
        for each in stored:
            self._restore(each)
        self._task = asyncio.get_running_loop().create_task(self._work())

    def _restore(self, stored: StoredAlarm) -> None:
        try:
            if stored.type is AlarmType.METRIC:
                definition: MetricDefinition | CompositeDefinition = metric_definition(
                    stored.document, self._pace
                )
            else:
                definition = composite_definition(stored.document)
        except ApiError as error:
            logger.error("alarm '%s' is not there any more: %s", stored.name, error.message)
            return
        alarm = Alarm(stored.scope, stored.name, stored.document, definition, 0.0, tags=dict(stored.tags))
        alarm.restore(stored.state)
        alarm.evaluated = self._evaluated
        self.registry.put(alarm)

    async def stop(self) -> None:
        """Evaluate no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            await self._note(Changes(now=self._now()))
            await self._run(self._file.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def add_action(self, prefix: str, run: Run) -> None:
        """Let actions whose ARNs begin with a prefix be run by something, on the event loop."""
        self._actions.add(prefix, run)

    def find(self, scope: Scope, name: str) -> Alarm | None:
        """The alarm of a name; once it has been put again, it is another object."""
        return self.registry.find(scope, name)

    def with_action(self, scope: Scope, arn: str) -> list[str]:
        """The names of the alarms that have an action, in any of their states."""
        return sorted(alarm.name for alarm in self.registry.of(scope).values() if arn in alarm.all_actions)

    # configuration

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
        await self._put(scope, document, definition, request.get("Tags", ()))
        self._has_new = True

    async def put_composite(self, scope: Scope, request: Mapping[str, Any]) -> None:
        """Have a composite alarm, in place of the one of that name.

        Args:
            scope: its account and region.
            request: PutCompositeAlarm's.

        Raises:
            ApiError: it cannot be so, or there are too many.
        """
        definition = composite_definition(request)
        alarm, verb = await self._put(
            scope, complete(request, scope, scales=False), definition, request.get("Tags", ())
        )
        state = self.registry.rule_state(alarm)
        if state is not alarm.state:
            over = _Round(self._now())
            reason = f"{alarm.arn} was {verb} and its alarm rule evaluates to {state}"
            over.set_state(alarm, state, reason, "", (), None)
            await self._finish(over)

    async def _put(
        self,
        scope: Scope,
        document: Mapping[str, Any],
        definition: MetricDefinition | CompositeDefinition,
        tags: Sequence[Mapping[str, str]],
    ) -> tuple[Alarm, str]:
        name, now = document["AlarmName"], self._now()
        alarm = Alarm(scope, name, document, definition, now, since=now, updated=now)
        async with self._configuring:
            before = self.find(scope, name)
            if before is not None and before.type is not alarm.type:
                raise refused(f"The alarm {name} exists and is a {before.type}; delete it before")
            self._check_children(alarm)
            changes = Changes(now=now)
            if before is None:
                if len(self.registry.of(scope)) >= _MAX_ALARMS:
                    raise ApiError(
                        "LimitExceeded", f"The maximum limit of {_MAX_ALARMS} alarms has been reached"
                    )
                alarm.tags = tags_of(tags, {})
                changes.history.append(history.created(alarm, now))
            else:
                _keep_state(alarm, before)
                changes.history.append(history.updated(alarm, before, now))
            changes.add(alarm)
            await self._write(changes)
            if before is not None:
                _keep_state(alarm, before)  # it may have changed in the meantime
            self.registry.put(alarm)
        return alarm, "created" if before is None else "updated"

    def _check_children(self, alarm: Alarm) -> None:
        """Refuse a composite alarm that looks at alarms that there are not, or at itself."""
        if not isinstance(alarm.definition, CompositeDefinition):
            return
        scope = alarm.scope
        for condition in alarm.definition.rule.conditions:
            if name_of(scope, condition.alarm) is None:
                msg = f"AlarmRule: {condition.alarm} is no alarm of account {scope.account} in {scope.region}"
                raise refused(msg)
        children = children_of(alarm)
        if self.registry.leads_to(scope, children, alarm.name):
            raise refused(f"Could not save the composite alarm as its rule refers to {alarm.name} itself")
        missing = [name for name in children if self.find(scope, name) is None]
        if missing:
            listed = ", ".join(missing)
            raise refused(
                f"Could not save the composite alarm as alarms [{listed}] in the alarm rule do not exist"
            )

    async def delete(self, scope: Scope, names: Collection[str]) -> None:
        """Have alarms no more; names of none are passed over.

        Raises:
            ApiError: another composite alarm looks at one of them.
        """
        async with self._configuring:
            found = [
                alarm for alarm in map(self.registry.of(scope).get, dict.fromkeys(names)) if alarm is not None
            ]
            for alarm in found:
                if any(parent.name not in names for parent in self.registry.parents(alarm)):
                    raise refused(
                        f"Cannot delete {alarm.name} as there are composite alarm(s) depending on it."
                    )
            changes = Changes(now=self._now())
            for alarm in found:
                changes.remove(alarm)
                changes.history.append(history.deleted(alarm, changes.now))
            await self._write(changes)
            for alarm in found:
                self.registry.remove(alarm)

    async def enable_actions(self, scope: Scope, names: Collection[str], *, enabled: bool) -> None:
        """Let alarms do what is to be done, or not; names of none are passed over."""
        async with self._configuring:
            changes, changed = Changes(now=self._now()), []
            for name in dict.fromkeys(names):
                before = self.find(scope, name)
                if before is None or before.document["ActionsEnabled"] is enabled:
                    continue
                document = {**before.document, "ActionsEnabled": enabled}
                alarm = Alarm(scope, name, document, before.definition, changes.now)
                _keep_state(alarm, before)
                changes.add(alarm)
                changes.history.append(history.updated(alarm, before, changes.now))
                changed.append((alarm, before))
            await self._write(changes)
            for alarm, before in changed:
                _keep_state(alarm, before)
                self.registry.put(alarm)

    async def set_tags(self, alarm: Alarm, tags: Mapping[str, str]) -> None:
        """Let an alarm have tags, in place of those that it has."""
        async with self._configuring:
            alarm.tags = dict(tags)
            changes = Changes(now=self._now())
            changes.add(alarm)
            await self._write(changes)

    # states

    async def set_state(
        self, scope: Scope, name: str, state: AlarmState, reason: str, reason_data: str
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
        recent = details.get("recentDatapoints")
        values = alarm.values
        if isinstance(recent, list):
            values = tuple(float(each) for each in reversed(recent) if isinstance(each, (int, float)))
        threshold = details.get("threshold")
        if not isinstance(threshold, (int, float)):
            threshold = threshold_of(alarm)
        over = _Round(self._now())
        over.set_state(alarm, state, reason, reason_data, values, threshold)
        await self._finish(over)

    async def tick(self) -> None:
        """What is done each second."""
        async with self._evaluating:
            await self._tick()

    async def _tick(self) -> None:
        now, length = self._now(), self._pace.period_s
        end = int((now - min(_LAG_S, length / 10)) // length) * length
        if end < self._evaluated:
            if self._evaluated - end <= _SETBACK * length:
                return
            logger.warning("the clock went back by %d s; alarms are evaluated anew", self._evaluated - end)
            for alarm in self.registry.all():
                alarm.evaluated = min(alarm.evaluated, end - length)
        elif end == self._evaluated and not self._has_new:
            return
        self._has_new = False
        due = [
            alarm for alarm in self.registry.all() if alarm.evaluated < end and alarm.type is AlarmType.METRIC
        ]
        over = _Round(now)
        over.changes.evaluated = self._evaluated = end
        again = await self._evaluate(due, end, over)
        await self._finish(over)
        for alarm in again:
            if self.find(alarm.scope, alarm.name) is alarm:
                self._actions.repeat(alarm, now)

    async def _evaluate(self, due: Sequence[Alarm], end: int, over: _Round) -> list[Alarm]:
        """Evaluate alarms: those that stay in their states."""
        same = []
        begun = time.perf_counter()
        for alarm in due:
            assert isinstance(alarm.definition, MetricDefinition)
            store = self._stores.find(alarm.scope)
            outcome = await evaluate(alarm.definition, alarm.state, store, end, over.changes.now)
            if time.perf_counter() - begun > _TURN_S:
                await asyncio.sleep(0)
                begun = time.perf_counter()
            if self.find(alarm.scope, alarm.name) is not alarm:  # it was put anew or deleted in the meantime
                self._has_new = True
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
                    alarm.definition.threshold,
                )
        return same

    async def _finish(self, over: _Round) -> None:
        """Let composite alarms follow, write down what has changed, and do what is to be done."""
        changed = {(alarm.scope, alarm.name): alarm for alarm, _, _ in over.acting}
        for alarm in self.registry.above(changed.values()):
            state = self.registry.rule_state(alarm)
            if state is not alarm.state:
                keys = [(alarm.scope, name) for name in children_of(alarm)]
                [cause, *_] = [changed[key] for key in keys if key in changed]
                over.set_state(
                    alarm,
                    state,
                    composite_reason(cause.arn, cause.state, cause.since),
                    composite_reason_data(cause.arn, cause.state, cause.since),
                    (),
                    None,
                )
                changed[alarm.scope, alarm.name] = alarm
        await self._note(over.changes)
        done = Changes(now=over.changes.now)
        for alarm, values, threshold in over.acting:
            done.history += self._actions.run(alarm, values, threshold, done.now)
        if done.history:
            await self._note(done)

    # the file

    async def _write(self, changes: Changes) -> None:
        """Write what a request changes.

        Raises:
            ApiError: it cannot be written (``InternalServiceError``).
        """
        try:
            await self._run(lambda: self._file.write(changes))
        except sqlite3.Error as error:
            raise ApiError("InternalServiceError", f"the alarms cannot be written: {error}", 500) from None

    async def _note(self, changes: Changes) -> None:
        """Write what has happened, now or the next time."""
        waiting, self._unwritten = self._unwritten, Changes()
        changes.history[:0] = waiting.history
        changes.states[:0] = waiting.states
        if not (changes.history or changes.states or changes.evaluated):
            return
        try:
            await self._run(lambda: self._file.write(changes))
        except sqlite3.Error as error:
            logger.error("the states of alarms cannot be written now: %s", error)
            self._unwritten.history[:0] = changes.history[-_MAX_UNWRITTEN:]
            self._unwritten.states[:0] = changes.states[-_MAX_UNWRITTEN:]

    async def history(self, query: HistoryQuery) -> list[HistoryItem]:
        """What has happened to alarms, also to those that are no more.

        Raises:
            ApiError: it cannot be read (``InternalServiceError``).
        """
        try:
            return await self._run(lambda: self._file.history(query))
        except sqlite3.Error as error:
            raise ApiError(
                "InternalServiceError", f"the history of alarms cannot be read: {error}", 500
            ) from None

    async def _work(self) -> None:
        while True:
            # half a second after the whole one, on which metrics of the second before come into the store
            await asyncio.sleep(_SECOND - (self._now() - _SECOND / 2) % _SECOND)
            try:
                await self.tick()
            except Exception:  # of one evaluation, which is no reason to end all
                logger.exception("evaluating alarms failed")


def _keep_state(alarm: Alarm, before: Alarm) -> None:
    """Let an alarm be in the state of the one in whose place it is."""
    configured = alarm.configured
    alarm.restore(before.state_document())
    alarm.configured = configured
    alarm.evaluated, alarm.values, alarm.failure = before.evaluated, before.values, before.failure
    alarm.tags = before.tags


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
