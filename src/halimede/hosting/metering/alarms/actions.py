"""What is done because of alarms."""

import logging
import re
from collections.abc import Callable

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms import history
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmAction
from halimede.hosting.metering.alarms.history import HistoryItem
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition

logger = logging.getLogger("halimede")

SCALING_POLICY = re.compile("arn:aws[a-z-]*:autoscaling:[^:]*:[^:]*:scalingPolicy:.*")
"""What is done again at each evaluation, while the alarm stays in its state."""

Run = Callable[[AlarmAction], None]


class Actions:
    """Runs actions. Lives on the event loop."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def add(self, prefix: str, run: Run) -> None:
        """Let actions whose ARNs begin with a prefix be run by something."""
        self._runs[prefix] = run

    def run(
        self, alarm: Alarm, values: tuple[float, ...], threshold: float | None, when: float
    ) -> list[HistoryItem]:
        """Do what is to be done since an alarm has a new state: what has happened."""
        items = []
        for arn in alarm.actions:
            failure = self._run(alarm, arn, values, threshold, when)
            if failure:
                logger.warning("alarm '%s': cannot execute action %s: %s", alarm.name, arn, failure)
            items.append(history.acted(alarm, arn, failure, when))
        return items

    def repeat(self, alarm: Alarm, when: float) -> None:
        """Do what is to be done again, since an alarm has been evaluated and stays in its state."""
        for arn in alarm.actions:
            if SCALING_POLICY.fullmatch(arn):
                self._run(alarm, arn, alarm.values, threshold_of(alarm), when)

    def _run(
        self, alarm: Alarm, arn: str, values: tuple[float, ...], threshold: float | None, when: float
    ) -> str:
        """Do one thing: why that is not possible, or ""."""
        run = max((prefix for prefix in self._runs if arn.startswith(prefix)), key=len, default=None)
        if run is None:
            return "this host has nothing that runs actions of this kind"
        latest = values[0] if values else None
        action = AlarmAction(alarm.scope, arn, alarm.name, alarm.state, latest, threshold, when, values)
        try:
            self._runs[run](action)
        except ApiError as error:
            return error.message
        except Exception as error:  # which is no reason for other alarms to suffer
            logger.exception("alarm '%s': action %s failed", alarm.name, arn)
            return str(error) or type(error).__name__
        return ""


def threshold_of(alarm: Alarm) -> float | None:
    """What an alarm's datapoints are compared with; None for a composite alarm."""
    return alarm.definition.threshold if isinstance(alarm.definition, MetricDefinition) else None
