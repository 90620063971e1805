"""Composite alarms whose actions another alarm suppresses."""

from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.metering.alarms.alarm import AlarmAction
from halimede.hosting.metering.pace import Pace
from tests.hosting.metering.alarms.serving import ALARM, TOPIC, arn, describe, history, refused
from tests.hosting.metering.serving import DAY, NOON, Metered, metered

SUPPRESSED = {
    "AlarmName": "a", "AlarmRule": "ALARM(x)", "AlarmActions": [TOPIC], "OKActions": [TOPIC],
    "ActionsSuppressor": "quiet", "ActionsSuppressorWaitPeriod": 20, "ActionsSuppressorExtensionPeriod": 30,
}  # fmt: skip


class Scene:
    """An alarm `a` that follows `x` and that `quiet` suppresses; times are in seconds after noon."""

    def __init__(self, host: Metered, **change: Any) -> None:
        self.host = host
        self.client = host.client("cloudwatch")
        self.actions: list[AlarmAction] = []
        host.loop.call(lambda: host.alarms.add_action("arn:aws:sns:", self.actions.append))
        for name in ("x", "quiet"):
            self.client.put_metric_alarm(**{**ALARM, "AlarmName": name}, TreatMissingData="ignore")
        self.client.put_composite_alarm(**{**SUPPRESSED, **change})
        self.at(30)  # what follows from its creation is over
        self.actions.clear()

    def suppression(self) -> tuple[list[tuple[float, str]], str | None]:
        """What was done, and what suppresses actions now."""
        return self.acted, self.by

    def at(self, second: float) -> None:
        """Let it be a time."""
        self.host.tick(NOON + second)

    def set(self, second: float, name: str, state: str) -> None:
        """Put an alarm into a state at a time."""
        self.at(second)
        self.client.set_alarm_state(AlarmName=name, StateValue=state, StateReason="r")

    @property
    def acted(self) -> list[tuple[float, str]]:
        """When something was done, and for which state."""
        return [(action.when - NOON, str(action.state)) for action in self.actions]

    @property
    def by(self) -> str | None:
        """What suppresses actions now."""
        found: str | None = describe(self.host).get("ActionsSuppressedBy")
        return found


@pytest.fixture
def scene(host: Metered) -> Scene:
    return Scene(host)


def test_actions_wait_for_the_suppressor_and_then_run(scene: Scene) -> None:
    scene.set(40, "x", "ALARM")
    assert (describe(scene.host)["StateValue"], scene.by) == ("ALARM", "WaitPeriod")
    assert describe(scene.host)["ActionsSuppressedReason"] == (
        "Actions are suppressed by the WaitPeriod of quiet until 12:01:00 UTC"
    )
    scene.at(59)
    assert scene.acted == []
    scene.at(60)
    scene.at(61)
    assert scene.suppression() == ([(60, "ALARM")], None)


def test_a_suppressor_in_alarm_suppresses_until_its_extension_period_is_over(scene: Scene) -> None:
    scene.set(40, "x", "ALARM")
    scene.set(50, "quiet", "ALARM")
    assert scene.by == "Alarm"
    assert (
        describe(scene.host)["ActionsSuppressedReason"]
        == "Actions are suppressed while quiet is in ALARM state"
    )
    scene.at(900)
    assert scene.acted == []
    scene.set(1000, "quiet", "OK")
    assert scene.by == "ExtensionPeriod"
    scene.at(1029)
    assert scene.acted == []
    scene.at(1030)
    assert scene.suppression() == ([(1030, "ALARM")], None)


def test_a_suppressor_that_was_in_alarm_before_suppresses(scene: Scene) -> None:
    scene.set(40, "quiet", "ALARM")
    scene.set(50, "x", "ALARM")
    scene.set(60, "x", "OK")
    assert scene.suppression() == ([], "Alarm")
    scene.set(70, "quiet", "INSUFFICIENT_DATA")
    scene.at(100)
    assert scene.suppression() == ([], None)  # it is in the state in which it was before


def test_a_state_that_went_in_the_wait_period_is_not_acted_on(scene: Scene) -> None:
    scene.set(40, "x", "ALARM")
    scene.set(50, "x", "OK")
    scene.at(70)
    assert scene.suppression() == ([], None)
    scene.set(80, "x", "ALARM")
    scene.at(100)
    assert scene.acted == [(100, "ALARM")]


def test_the_suppressor_may_come_back_in_the_extension_period(scene: Scene) -> None:
    scene.set(40, "quiet", "ALARM")
    scene.set(41, "x", "ALARM")
    scene.set(50, "quiet", "OK")
    scene.set(60, "quiet", "ALARM")
    scene.at(900)
    assert scene.suppression() == ([], "Alarm")


def test_periods_may_be_zero(host: Metered) -> None:
    scene = Scene(host, ActionsSuppressorWaitPeriod=0, ActionsSuppressorExtensionPeriod=0)
    scene.set(40, "x", "ALARM")
    assert scene.acted == [(40, "ALARM")]
    scene.set(50, "quiet", "ALARM")
    scene.set(60, "x", "OK")
    assert scene.acted == [(40, "ALARM")]
    scene.set(70, "quiet", "OK")
    assert scene.acted == [(40, "ALARM"), (70, "OK")]


def test_what_is_suppressed_is_told_in_the_history(scene: Scene) -> None:
    scene.set(40, "x", "ALARM")
    summaries = [item["HistorySummary"] for item in history(scene.host, HistoryItemType="Action")]
    assert summaries[-1] == "Actions for state ALARM suppressed by WaitPeriod"


def test_a_clock_that_goes_back_makes_no_period_longer(scene: Scene) -> None:
    scene.set(40, "x", "ALARM")
    scene.at(40 - DAY)
    scene.at(69 - DAY)
    assert scene.acted == []
    scene.at(70 - DAY)
    assert len(scene.acted) == 1


def test_a_suppressor_that_comes_later_repeats_nothing(scene: Scene) -> None:
    scene.client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)", AlarmActions=[TOPIC])
    scene.set(40, "x", "ALARM")
    scene.client.put_composite_alarm(**SUPPRESSED)
    scene.set(50, "quiet", "ALARM")
    scene.set(60, "quiet", "OK")
    scene.at(900)
    assert scene.acted == [(40, "ALARM")]


def test_suppression_outlasts_the_host(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        Scene(host).set(40, "x", "ALARM")
    actions: list[AlarmAction] = []
    with metered(tmp_path, NOON + 45) as host:
        host.loop.call(lambda: host.alarms.add_action("arn:aws:sns:", actions.append))
        assert describe(host)["ActionsSuppressedBy"] == "WaitPeriod"
        host.tick(NOON + 60)
        assert [str(action.state) for action in actions] == ["ALARM"]


def test_periods_are_shortened_with_all_others(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(6)) as host:
        scene = Scene(host)
        scene.set(40, "x", "ALARM")
        scene.at(41)
        assert scene.acted == []
        scene.at(42)
        assert scene.acted == [(42, "ALARM")]


def test_an_alarm_that_suppresses_is_not_deleted(scene: Scene) -> None:
    code, text = refused(scene.client.delete_alarms, AlarmNames=["quiet"])
    assert (code, text) == (
        "ValidationError",
        "Cannot delete quiet as there are composite alarm(s) depending on it.",
    )
    scene.set(40, "x", "ALARM")
    scene.client.put_composite_alarm(AlarmName="a", AlarmRule="ALARM(x)")
    scene.at(60)
    assert (scene.by, scene.acted) == (None, [])
    scene.client.delete_alarms(AlarmNames=["quiet"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ActionsSuppressorWaitPeriod": None}, "are required when ActionsSuppressor is specified"),
        ({"ActionsSuppressorExtensionPeriod": None}, "are required when ActionsSuppressor is specified"),
        ({"ActionsSuppressor": None}, "ActionsSuppressorWaitPeriod can be specified only with ActionsSuppressor"),
        ({"ActionsSuppressorWaitPeriod": -1}, "must not be negative"),
        ({"ActionsSuppressor": "a"}, "The alarm a cannot be its own ActionsSuppressor"),
        ({"ActionsSuppressor": arn("a")}, "The alarm a cannot be its own ActionsSuppressor"),
        ({"ActionsSuppressor": "none"}, "as the ActionsSuppressor none does not exist"),
        ({"ActionsSuppressor": "arn:aws:sns:eu-west-1:000000000000:t"}, "does not exist"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(scene: Scene, change: dict[str, Any], text: str) -> None:
    request = {name: value for name, value in {**SUPPRESSED, **change}.items() if value is not None}
    code, message = refused(scene.client.put_composite_alarm, **request)
    assert code == "ValidationError"
    assert text in message
