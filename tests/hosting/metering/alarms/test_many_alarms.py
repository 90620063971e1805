"""Many alarms: the event loop stays free for others, and there is an end to them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.alarm import Alarm
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.documents import complete
from halimede.hosting.metering.alarms.metric_definition import metric_definition
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import Metric, MetricStores
from tests.hosting.metering.alarms.serving import ALARM
from tests.hosting.metering.serving import MINUTE, NOON, SCOPE


def request(number: int, **further: Any) -> dict[str, Any]:
    dimensions = [{"Name": "number", "Value": str(number % 100)}]
    return {**ALARM, "AlarmName": f"a{number}", "Dimensions": dimensions, **further}


async def turns_of_others(busy: asyncio.Task[None]) -> int:
    """How often the event loop turned to others while a task ran."""
    turns = 0
    while not busy.done():
        await asyncio.sleep(0)  # sleeps: a turn of others
        turns += 1
    return turns


def test_two_thousand_alarms_leave_the_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.metering.alarms.evaluator._TURN_S", 0.0)  # each alarm takes longer
    stores = MetricStores()
    for number in range(100):
        metric = Metric.of("mine", "m", {"number": str(number)})
        for age in range(60):
            stores.of(SCOPE).add_all(metric, [4, 6, number % 10], "None", NOON - age * MINUTE - 1)
    now = NOON + 2

    async def work() -> list[int]:
        nonlocal now
        alarms = Alarms(tmp_path / "alarms.db", stores, lambda: now)
        await alarms.open()
        for number in range(2_000):
            document = complete(request(number, Period=3_600 if number % 10 == 0 else 60), SCOPE, scales=True)
            definition = metric_definition(document, Pace())
            alarms.registry.put(Alarm(SCOPE, f"a{number}", document, definition, NOON))
        turns = []
        for minute in range(3):
            now = NOON + minute * MINUTE + 2
            turns.append(await turns_of_others(asyncio.get_running_loop().create_task(alarms.tick())))
        states = {alarm.state for alarm in alarms.registry.all()}
        assert len(states) > 1
        await alarms.stop()
        return turns

    assert min(asyncio.run(work())) >= 2_000


def test_an_account_has_at_most_five_thousand_alarms_in_a_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.metering.alarms.configuration._MAX_ALARMS", 3)

    async def work() -> None:
        alarms = Alarms(tmp_path / "alarms.db", MetricStores(), lambda: NOON, Pace())
        await alarms.open()
        for number in range(3):
            await alarms.put(SCOPE, request(number))
        with pytest.raises(ApiError, match=r"LimitExceeded: The maximum limit of 3 alarms has been reached"):
            await alarms.put(SCOPE, request(3))
        await alarms.put(SCOPE, request(2, Threshold=9))
        await alarms.put(SCOPE._replace(region="us-west-2"), request(3))
        await alarms.delete(SCOPE, ["a0", "none"])
        await alarms.put(SCOPE, request(3))
        await alarms.stop()

    asyncio.run(work())
