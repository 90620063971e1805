"""What is done because of alarms: by whom, how often, and what is said where nothing can do it."""

import json
from typing import Any

import pytest

from halimede.hosting.metering.alarms.alarm import AlarmAction
from tests.hosting.metering.alarms.serving import (
    ALARM,
    POLICY,
    TOPIC,
    describe,
    history,
    minute_over,
    put_values,
    state,
)
from tests.hosting.metering.serving import MINUTE, NOON, SCOPE, Metered


class Runner:
    """Takes actions and notes them."""

    def __init__(self, host: Metered, prefix: str = "arn:aws:autoscaling:") -> None:
        self.actions: list[AlarmAction] = []
        host.loop.call(lambda: host.alarms.add_action(prefix, self.run))

    def run(self, action: AlarmAction) -> None:
        self.actions.append(action)

    @property
    def minutes(self) -> list[tuple[str, float]]:
        """The states, and the minutes after noon."""
        return [(str(each.state), (each.when - NOON) // MINUTE) for each in self.actions]


@pytest.fixture
def runner(host: Metered) -> Runner:
    return Runner(host)


def test_what_an_action_knows(host: Metered, client: Any, runner: Runner) -> None:
    put_values(host, 4, 8, 9.5)
    client.put_metric_alarm(**{**ALARM, "EvaluationPeriods": 2}, AlarmActions=[POLICY])
    minute_over(host)
    [action] = runner.actions
    expected = AlarmAction(SCOPE, POLICY, "a", describe(host)["StateValue"], 9.5, 5.0, NOON + 2, (9.5, 8.0))
    assert action == expected


def test_scaling_policies_run_again_each_minute_while_the_state_stays(
    host: Metered, client: Any, runner: Runner
) -> None:
    client.put_metric_alarm(**ALARM, AlarmActions=[POLICY])
    put_values(host, 9, 9, 9, 1, 1, end=NOON + 4 * MINUTE)
    for minute in range(5):
        minute_over(host, minute)
        minute_over(host, minute)
    assert runner.minutes == [("ALARM", 0), ("ALARM", 1), ("ALARM", 2)]
    assert [item["HistorySummary"] for item in history(host, HistoryItemType="Action")] == [
        f"Successfully executed action {POLICY}"
    ]


def test_other_actions_run_only_when_the_state_changes(host: Metered, client: Any) -> None:
    runner = Runner(host, "arn:aws:sns:")
    actions = {"OKActions": [TOPIC], "AlarmActions": [TOPIC], "InsufficientDataActions": [TOPIC]}
    client.put_metric_alarm(**ALARM, **actions)
    put_values(host, 9, 9, 1, 1, end=NOON + 3 * MINUTE)
    for minute in range(8):
        minute_over(host, minute)
    assert runner.minutes == [("ALARM", 0), ("OK", 2), ("INSUFFICIENT_DATA", 6)]


def test_an_action_that_nothing_runs_is_told_in_the_history(host: Metered, client: Any) -> None:
    put_values(host, 9)
    client.put_metric_alarm(**ALARM, AlarmActions=[TOPIC])
    minute_over(host)
    assert state(host) == "ALARM"
    [item] = history(host, HistoryItemType="Action")
    assert item["HistorySummary"] == f"Failed to execute action {TOPIC}"
    data = json.loads(item["HistoryData"])
    assert data["actionState"] == "Failed"
    assert data["error"] == "this host has nothing that runs actions of this kind"


def test_an_action_that_fails_is_told_in_the_history_and_others_run(host: Metered, client: Any) -> None:
    def fail(_: AlarmAction) -> None:
        raise RuntimeError("no room")

    host.loop.call(lambda: host.alarms.add_action("arn:aws:sns:", fail))
    runner = Runner(host)
    put_values(host, 9)
    client.put_metric_alarm(**ALARM, AlarmActions=[TOPIC, POLICY])
    minute_over(host)
    failed, done = history(host, HistoryItemType="Action")
    assert json.loads(failed["HistoryData"])["error"] == "no room"
    assert done["HistorySummary"] == f"Successfully executed action {POLICY}"
    assert len(runner.actions) == 1


def test_the_longest_prefix_runs_an_action(host: Metered, client: Any, runner: Runner) -> None:
    other = Runner(host, POLICY)
    put_values(host, 9)
    client.put_metric_alarm(**ALARM, AlarmActions=[POLICY])
    minute_over(host)
    assert (len(other.actions), len(runner.actions)) == (1, 0)


def test_disabled_actions_do_not_run(host: Metered, client: Any, runner: Runner) -> None:
    put_values(host, 9, 9, 9, end=NOON + 2 * MINUTE)
    client.put_metric_alarm(**ALARM, AlarmActions=[POLICY], ActionsEnabled=False)
    minute_over(host)
    assert state(host) == "ALARM"
    assert runner.actions == []
    client.enable_alarm_actions(AlarmNames=["a", "none"])
    minute_over(host, 1)
    assert runner.minutes == [("ALARM", 1)]
    client.disable_alarm_actions(AlarmNames=["a"])
    minute_over(host, 2)
    assert runner.minutes == [("ALARM", 1)]
    assert describe(host)["ActionsEnabled"] is False


def test_a_state_that_is_set_runs_its_actions_until_the_next_evaluation(
    host: Metered, client: Any, runner: Runner
) -> None:
    put_values(host, 1, 1, end=NOON + MINUTE)
    client.put_metric_alarm(**ALARM, AlarmActions=[POLICY])
    minute_over(host)
    data = json.dumps({"recentDatapoints": [6, 7.5], "threshold": 6.5})
    client.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="a test", StateReasonData=data)
    client.set_alarm_state(AlarmName="a", StateValue="ALARM", StateReason="again")
    [action] = runner.actions
    assert (action.value, action.values, action.threshold) == (7.5, (7.5, 6.0), 6.5)
    assert (describe(host)["StateReason"], describe(host)["StateReasonData"]) == ("a test", data)
    minute_over(host, 1)
    assert state(host) == "OK"
    assert len(runner.actions) == 1


def test_a_clock_that_jumps_acts_once_for_a_period(host: Metered, client: Any, runner: Runner) -> None:
    client.put_metric_alarm(**ALARM, AlarmActions=[POLICY], TreatMissingData="breaching")
    for minute in (0, -1, 0, -4, 0, 1, 1_000, 1_000):
        minute_over(host, minute)
    assert runner.minutes == [("ALARM", 0), ("ALARM", 1), ("ALARM", 1_000)]
