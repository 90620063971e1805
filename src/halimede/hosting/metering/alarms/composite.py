"""What a composite alarm watches, as PutCompositeAlarm's request says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.rules import Rule, RuleError, parse_rule
from halimede.hosting.metering.pace import Pace

_PERIODS = ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")


@dataclass(frozen=True, slots=True)
class CompositeDefinition:
    """What a composite alarm watches.

    Attributes:
        rule: it is in ALARM while the rule holds, else OK.
        suppressor: the name or ARN of the alarm that suppresses its actions; "" for none.
        wait_s: how long it waits for the suppressor, in seconds.
        extension_s: how long its actions stay suppressed after the suppressor has left ALARM, in seconds.
    """

    rule: Rule
    suppressor: str = ""
    wait_s: float = 0.0
    extension_s: float = 0.0


def composite_definition(request: Mapping[str, Any], pace: Pace) -> CompositeDefinition:
    """What a PutCompositeAlarm request says.

    Args:
        request: it, checked against the service's model.
        pace: how long AWS's periods take here.

    Raises:
        ApiError: it cannot be so (``ValidationError``).
    """
    if "ActionConfiguration" in request:
        msg = "ActionConfiguration: notifications, which it configures, are not available in this version"
        raise refused(msg)
    given = [member for member in _PERIODS if member in request]
    if len(given) < len(_PERIODS) and "ActionsSuppressor" in request:
        raise refused(f"{' and '.join(_PERIODS)} are required when ActionsSuppressor is specified")
    if given and "ActionsSuppressor" not in request:
        raise refused(f"{given[0]} can be specified only with ActionsSuppressor")
    wait, extension = (request.get(member, 0) for member in _PERIODS)
    if wait < 0 or extension < 0:
        raise refused(f"{' and '.join(_PERIODS)} must not be negative")
    try:
        rule = parse_rule(request["AlarmRule"])
    except RuleError as error:
        raise refused(str(error)) from None
    return CompositeDefinition(
        rule, request.get("ActionsSuppressor", ""), pace.seconds(wait), pace.seconds(extension)
    )
