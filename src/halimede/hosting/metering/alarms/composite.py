"""What a composite alarm watches, as PutCompositeAlarm's request says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.rules import Rule, RuleError, parse_rule

_UNAVAILABLE = {
    "ActionsSuppressor": "suppressing actions is not available in this version; use AND NOT ALARM(…) in AlarmRule",
    "ActionsSuppressorWaitPeriod": "suppressing actions is not available in this version",
    "ActionsSuppressorExtensionPeriod": "suppressing actions is not available in this version",
    "ActionConfiguration": "notifications, which it configures, are not available in this version",
}


@dataclass(frozen=True, slots=True)
class CompositeDefinition:
    """What a composite alarm watches.

    Attributes:
        rule: it is in ALARM while the rule holds, else OK.
    """

    rule: Rule


def composite_definition(request: Mapping[str, Any]) -> CompositeDefinition:
    """What a PutCompositeAlarm request says.

    Raises:
        ApiError: it cannot be so (``ValidationError``).
    """
    for member, why in _UNAVAILABLE.items():
        if member in request:
            raise refused(f"{member}: {why}")
    try:
        return CompositeDefinition(parse_rule(request["AlarmRule"]))
    except RuleError as error:
        raise refused(str(error)) from None
