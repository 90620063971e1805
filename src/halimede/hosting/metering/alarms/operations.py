"""CloudWatch's operations on alarms."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.access.references import references_of
from halimede.hosting.api.service_models import service_model
from halimede.hosting.api.services import About, Operation
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller, Scope
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType, name_of
from halimede.hosting.metering.alarms.alarm_file import HistoryQuery
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.documents import tags_of
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.registry import children_of, suppressor_of
from halimede.hosting.metering.alarms.states import AlarmState
from halimede.hosting.metering.metric_data import metric_of
from halimede.hosting.paging import begin_of

Request = Mapping[str, Any]
Answer = dict[str, Any]

_PAGE = 50
_RELATIVES = ("ChildrenOfAlarmName", "ParentsOfAlarmName")
_NAMES = ("AlarmName", "ResourceARN", "ActionsSuppressor", *_RELATIVES)
_PUT = {AlarmType.METRIC: "PutMetricAlarm", AlarmType.COMPOSITE: "PutCompositeAlarm"}
"""By which operation alarms are made."""

_WITH_RELATIVES = frozenset({"MaxRecords", "NextToken"})


def alarm_operations(alarms: Alarms) -> Mapping[str, Operation]:
    """The operations over the alarms of the caller's account and region, by name."""
    every = _Operations(alarms)
    return {
        "PutMetricAlarm": every.put_metric_alarm,
        "PutCompositeAlarm": every.put_composite_alarm,
        "DescribeAlarms": every.describe_alarms,
        "DescribeAlarmsForMetric": every.describe_alarms_for_metric,
        "DescribeAlarmHistory": every.describe_alarm_history,
        "SetAlarmState": every.set_alarm_state,
        "EnableAlarmActions": every.enable_alarm_actions,
        "DisableAlarmActions": every.disable_alarm_actions,
        "DeleteAlarms": every.delete_alarms,
        "ListTagsForResource": every.list_tags_for_resource,
        "TagResource": every.tag_resource,
        "UntagResource": every.untag_resource,
    }


def alarms_about(alarms: Alarms) -> About:
    """The endpoints that alarms watch or scale, of the alarms that a request names or that follow from those."""
    model = service_model("cloudwatch", frozenset(_PUT.values()))

    def about(_: str, request: Request, caller: Caller) -> Collection[str]:
        registry, scope, found = alarms.registry, caller.scope, set[str]()
        references = [
            *(request[member] for member in _NAMES if member in request),
            *request.get("AlarmNames", ()),
        ]
        names = {name for each in references if (name := name_of(scope, each)) is not None}
        named = [alarm for name in names if (alarm := registry.find(scope, name)) is not None]
        for alarm in (*named, *registry.above(named)):
            shape = model.operation_model(_PUT[alarm.type]).input_shape
            found |= set(references_of(shape, alarm.document).endpoints)
        return found

    return about


class _Operations:
    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms

    async def put_metric_alarm(self, request: Request, caller: Caller) -> Answer:
        await self._alarms.put(caller.scope, request)
        return {}

    async def put_composite_alarm(self, request: Request, caller: Caller) -> Answer:
        await self._alarms.put_composite(caller.scope, request)
        return {}

    async def describe_alarms(self, request: Request, caller: Caller) -> Answer:
        found = list(self._asked(request, caller.scope))
        begin = begin_of(request.get("NextToken"), "InvalidNextToken")
        end = begin + request.get("MaxRecords", _PAGE)
        answer: Answer = {"CompositeAlarms": [], "MetricAlarms": []}
        describe = _describe_relative if any(each in request for each in _RELATIVES) else _describe
        for alarm in found[begin:end]:
            answer[f"{alarm.type}s"].append(describe(alarm))
        if end < len(found):
            answer["NextToken"] = str(end)
        return answer

    def _asked(self, request: Request, scope: Scope) -> Iterator[Alarm]:
        """The alarms that DescribeAlarms is about, in the order of their names."""
        relatives = [each for each in _RELATIVES if each in request]
        if relatives:
            if len(relatives) > 1 or request.keys() - {relatives[0]} - _WITH_RELATIVES:
                raise refused(f"{relatives[0]} can be given only with MaxRecords and NextToken")
            yield from self._relatives(request, scope)
            return
        if "AlarmNames" in request and "AlarmNamePrefix" in request:
            raise refused("AlarmNames and AlarmNamePrefix cannot be specified together.")
        types = request.get("AlarmTypes") or [AlarmType.METRIC]
        alarms = self._alarms.registry.of(scope)
        names = set(request.get("AlarmNames", ())) or alarms.keys()
        prefix, state = request.get("AlarmNamePrefix", ""), request.get("StateValue")
        action = request.get("ActionPrefix", "")
        for name in sorted(alarms.keys() & names):
            alarm = alarms[name]
            if (
                alarm.type in types
                and name.startswith(prefix)
                and (state is None or alarm.state == state)
                and (not action or any(arn.startswith(action) for arn in alarm.all_actions))
            ):
                yield alarm

    def _relatives(self, request: Request, scope: Scope) -> Sequence[Alarm]:
        registry = self._alarms.registry
        if "ParentsOfAlarmName" in request:
            return registry.parents(self._existing(scope, request["ParentsOfAlarmName"]))
        parent = self._existing(scope, request["ChildrenOfAlarmName"])
        if parent.type is not AlarmType.COMPOSITE:
            raise refused(f"{parent.name} is not a composite alarm")
        children = [registry.find(scope, name) for name in children_of(parent)]
        return [child for child in children if child is not None]

    def _existing(self, scope: Scope, name: str) -> Alarm:
        alarm = self._alarms.find(scope, name)
        if alarm is None:
            raise refused(f"The alarm {name} does not exist")
        return alarm

    async def describe_alarms_for_metric(self, request: Request, caller: Caller) -> Answer:
        metric = metric_of(request)
        alarms = self._alarms.registry.of(caller.scope)
        found = [
            _describe(alarm)
            for _, alarm in sorted(alarms.items())
            if isinstance(alarm.definition, MetricDefinition)
            and alarm.definition.metric == metric
            and all(
                alarm.document.get(member) == request[member]
                for member in ("Statistic", "ExtendedStatistic", "Period", "Unit")
                if member in request
            )
        ]
        return {"MetricAlarms": found}

    async def describe_alarm_history(self, request: Request, caller: Caller) -> Answer:
        if "AlarmContributorId" in request:
            raise refused("AlarmContributorId: alarms with contributors are not available in this version")
        begin = begin_of(request.get("NextToken"), "InvalidNextToken")
        count = request.get("MaxRecords", _PAGE)
        start, end = request.get("StartDate"), request.get("EndDate")
        if start is not None and end is not None and start >= end:
            raise refused("StartDate must be before EndDate")
        items = await self._alarms.history(
            HistoryQuery(
                caller.scope,
                request.get("AlarmName", ""),
                request.get("AlarmTypes") or [AlarmType.METRIC],
                request.get("HistoryItemType", ""),
                start.timestamp() if start is not None else 0.0,
                end.timestamp() if end is not None else 1e12,
                request.get("ScanBy", "TimestampDescending") == "TimestampDescending",
                begin,
                count + 1,
            )
        )
        answer: Answer = {
            "AlarmHistoryItems": [
                {
                    "AlarmName": item.name,
                    "AlarmType": item.alarm_type,
                    "Timestamp": _time(item.when),
                    "HistoryItemType": item.type,
                    "HistorySummary": item.summary,
                    "HistoryData": item.data,
                }
                for item in items[:count]
            ]
        }
        if len(items) > count:
            answer["NextToken"] = str(begin + count)
        return answer

    async def set_alarm_state(self, request: Request, caller: Caller) -> Answer:
        await self._alarms.set_state(
            caller.scope,
            request["AlarmName"],
            AlarmState(request["StateValue"]),
            request["StateReason"],
            request.get("StateReasonData", ""),
        )
        return {}

    async def enable_alarm_actions(self, request: Request, caller: Caller) -> Answer:
        await self._alarms.configuration.enable_actions(caller.scope, request["AlarmNames"], enabled=True)
        return {}

    async def disable_alarm_actions(self, request: Request, caller: Caller) -> Answer:
        await self._alarms.configuration.enable_actions(caller.scope, request["AlarmNames"], enabled=False)
        return {}

    async def delete_alarms(self, request: Request, caller: Caller) -> Answer:
        alarms = self._alarms.registry.of(caller.scope)
        names = request["AlarmNames"]
        found = [alarms[name] for name in dict.fromkeys(names) if name in alarms]
        if names and not found:
            raise ApiError("ResourceNotFound", f"There are no alarms {', '.join(names)}", 404)
        if sum(alarm.type is AlarmType.COMPOSITE for alarm in found) > 1:
            raise refused("Only one composite alarm can be deleted with one request")
        await self._alarms.delete(caller.scope, names)
        return {}

    # tags

    def _tagged(self, request: Request, caller: Caller) -> Alarm:
        arn = request["ResourceARN"]
        name = name_of(caller.scope, arn) if arn.startswith("arn:") else None
        alarm = self._alarms.find(caller.scope, name) if name is not None else None
        if alarm is None:
            details: dict[str, object] = {"ResourceType": "alarm", "ResourceId": arn}
            raise ApiError("ResourceNotFoundException", f"There is no alarm {arn}", 404, details)
        return alarm

    async def list_tags_for_resource(self, request: Request, caller: Caller) -> Answer:
        tags = self._tagged(request, caller).tags
        return {"Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)]}

    async def tag_resource(self, request: Request, caller: Caller) -> Answer:
        alarm = self._tagged(request, caller)
        try:
            tags = tags_of(request["Tags"], alarm.tags)
        except ApiError as error:
            raise ApiError("InvalidParameterValue", error.message) from None
        await self._alarms.configuration.set_tags(caller.scope, alarm.name, tags)
        return {}

    async def untag_resource(self, request: Request, caller: Caller) -> Answer:
        alarm = self._tagged(request, caller)
        tags = {key: value for key, value in alarm.tags.items() if key not in request["TagKeys"]}
        await self._alarms.configuration.set_tags(caller.scope, alarm.name, tags)
        return {}


def _describe(alarm: Alarm) -> Answer:
    answer = {
        **alarm.document,
        "AlarmArn": alarm.arn,
        "AlarmConfigurationUpdatedTimestamp": _time(alarm.configured),
        "StateValue": alarm.state,
        "StateReason": alarm.reason,
        "StateUpdatedTimestamp": _time(alarm.updated),
        "StateTransitionedTimestamp": _time(alarm.since),
    }
    if alarm.reason_data:
        answer["StateReasonData"] = alarm.reason_data
    suppression = alarm.suppression
    if suppression.by is not None:
        answer["ActionsSuppressedBy"] = suppression.by
        answer["ActionsSuppressedReason"] = _suppression_reason(alarm)
    if alarm.failure:
        answer["EvaluationState"] = "EVALUATION_ERROR"
    return answer


def _suppression_reason(alarm: Alarm) -> str:
    suppressor, until = suppressor_of(alarm), alarm.suppression.until
    if not until:
        return f"Actions are suppressed while {suppressor} is in ALARM state"
    return f"Actions are suppressed by the {alarm.suppression.by} of {suppressor} until {_time(until):%H:%M:%S UTC}"


def _describe_relative(alarm: Alarm) -> Answer:
    return {
        "AlarmName": alarm.name,
        "AlarmArn": alarm.arn,
        "StateValue": alarm.state,
        "StateUpdatedTimestamp": _time(alarm.updated),
    }


def _time(when: float) -> datetime:
    return datetime.fromtimestamp(when, UTC)
