"""What has happened to alarms: their configuration, their states, and what was done."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType

_MAX_DATA = 4_095
_OTHER_NAMES = {"OKActions": "okactions"}
_MAX_SUMMARY = 255


class ItemType(StrEnum):
    """Kinds of items."""

    CONFIGURATION = "ConfigurationUpdate"
    STATE = "StateUpdate"
    ACTION = "Action"


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """Something that has happened to an alarm.

    Attributes:
        scope, name, alarm_type: the alarm's.
        when: in seconds since 1970.
        type: what kind of thing.
        summary: what, in a sentence.
        data: the same as JSON, with details.
    """

    scope: Scope
    name: str
    alarm_type: AlarmType
    when: float
    type: ItemType
    summary: str
    data: str


def created(alarm: Alarm, when: float) -> HistoryItem:
    """An alarm is new."""
    data = {"type": "Create", "createdAlarm": _configuration(alarm)}
    return _item(alarm, when, ItemType.CONFIGURATION, f'Alarm "{alarm.name}" created', data)


def updated(alarm: Alarm, before: Alarm, when: float) -> HistoryItem:
    """An alarm is configured otherwise than before."""
    data = {
        "type": "Update",
        "originalUpdatedFields": _configuration(before),
        "updatedAlarm": _configuration(alarm),
    }
    return _item(alarm, when, ItemType.CONFIGURATION, f'Alarm "{alarm.name}" updated', data)


def deleted(alarm: Alarm, when: float) -> HistoryItem:
    """An alarm is no more."""
    data = {"type": "Delete", "deletedAlarm": _configuration(alarm)}
    return _item(alarm, when, ItemType.CONFIGURATION, f'Alarm "{alarm.name}" deleted', data)


def state_of(alarm: Alarm) -> dict[str, Any]:
    """An alarm's state, as items tell it."""
    state: dict[str, Any] = {"stateValue": alarm.state, "stateReason": alarm.reason}
    if alarm.reason_data:
        state["stateReasonData"] = orjson.loads(alarm.reason_data)
    return state


def changed(alarm: Alarm, old: Mapping[str, Any], when: float) -> HistoryItem:
    """An alarm has another state than before.

    Args:
        alarm: the alarm, in its new state.
        old: what `state_of` said before.
        when: the time, in seconds since 1970.
    """
    summary = f"Alarm updated from {old['stateValue']} to {alarm.state}"
    data = {"oldState": old, "newState": state_of(alarm)}
    return _item(alarm, when, ItemType.STATE, summary, data)


def acted(alarm: Alarm, arn: str, failure: str, when: float) -> HistoryItem:
    """Something was done because of a new state, or could not be."""
    words = "Failed to execute" if failure else "Successfully executed"
    data: dict[str, Any] = {
        "actionState": "Failed" if failure else "Succeeded",
        "notificationResource": arn,
        "stateValue": alarm.state,
    }
    if failure:
        data["error"] = failure
    return _item(alarm, when, ItemType.ACTION, f"{words} action {arn}", data)


def suppressed(alarm: Alarm, when: float) -> HistoryItem:
    """What was to be done because of a new state was suppressed."""
    summary = f"Actions for state {alarm.state} suppressed by {alarm.suppression.by}"
    data = {
        "actionState": "Suppressed",
        "stateValue": alarm.state,
        "actionsSuppressedBy": alarm.suppression.by,
        "actionsSuppressor": alarm.document["ActionsSuppressor"],
    }
    return _item(alarm, when, ItemType.ACTION, summary, data)


def _configuration(alarm: Alarm) -> dict[str, Any]:
    found: dict[str, Any] = _in_history(alarm.document)
    return found


def _in_history(value: Any) -> Any:
    """A value with the names that CloudWatch has in histories."""
    if isinstance(value, list):
        return [_in_history(each) for each in value]
    if isinstance(value, Mapping):
        return {
            _OTHER_NAMES.get(name, name[:1].lower() + name[1:]): _in_history(each)
            for name, each in value.items()
        }
    return value


def _item(alarm: Alarm, when: float, kind: ItemType, summary: str, details: Mapping[str, Any]) -> HistoryItem:
    data = orjson.dumps({"version": "1.0", **details}).decode()
    if len(data) > _MAX_DATA:
        data = orjson.dumps({"version": "1.0", "type": details.get("type", kind), "truncated": True}).decode()
    return HistoryItem(alarm.scope, alarm.name, alarm.type, when, kind, summary[:_MAX_SUMMARY], data)
