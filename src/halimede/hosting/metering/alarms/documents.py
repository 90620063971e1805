"""What requests to put alarms of any kind have in common."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.actions import SCALING_POLICY
from halimede.hosting.metering.alarms.refusals import refused

Request = Mapping[str, Any]

_ACTIONS = ("OKActions", "AlarmActions", "InsufficientDataActions")
_ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:(?P<region>[a-z0-9-]*):[0-9]{0,12}:.+", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_ACTIONS = 5
_MAX_TAGS = 50


def complete(request: Request, scope: Scope, *, scales: bool) -> dict[str, Any]:
    """The request with AWS's defaults and without tags.

    Args:
        request: it.
        scope: the account and region of the alarm.
        scales: whether actions may be scaling policies.

    Raises:
        ApiError: its name or one of its actions cannot be so (``ValidationError``).
    """
    name = request["AlarmName"]
    if _CONTROL.search(name):
        raise refused("AlarmName must not contain ASCII control characters")
    document = {
        "ActionsEnabled": True,
        **{member: list(request.get(member, ())) for member in _ACTIONS},
        **{member: value for member, value in request.items() if member not in (*_ACTIONS, "Tags")},
    }
    for member in _ACTIONS:
        if len(document[member]) > _MAX_ACTIONS:
            raise refused(f"{member} must have at most {_MAX_ACTIONS} actions")
        for arn in document[member]:
            _check_action(arn, scope, scales=scales)
    return document


def _check_action(arn: str, scope: Scope, *, scales: bool) -> None:
    match = _ARN.fullmatch(arn)
    if match is None:
        raise refused(f"Invalid arn syntax: {arn}")
    if match["region"] not in ("", scope.region):
        raise refused(f"Invalid region {match['region']} specified. Only {scope.region} is supported.")
    if not scales and SCALING_POLICY.fullmatch(arn):
        raise refused(f"Composite alarms cannot have scaling policies as actions: {arn}")


def tags_of(tags: Sequence[Mapping[str, str]], present: Mapping[str, str]) -> dict[str, str]:
    """All tags of an alarm, by key.

    Args:
        tags: those that a request has.
        present: those that the alarm has.

    Raises:
        ApiError: a key is AWS's own, or there twice, or there are too many (``ValidationError``).
    """
    keys = [tag["Key"] for tag in tags]
    reserved = [key for key in keys if key.lower().startswith("aws:")]
    if reserved:
        raise refused(f"aws: prefixed tag key names are not allowed for external use: '{reserved[0]}'")
    if len(set(keys)) < len(keys):
        raise refused("Duplicate tag keys found; each key may be given once")
    every = {**present, **{tag["Key"]: tag["Value"] for tag in tags}}
    if len(every) > _MAX_TAGS:
        raise refused(f"an alarm may have {_MAX_TAGS} tags, and would have {len(every)}")
    return every
