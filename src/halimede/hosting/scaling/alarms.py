"""The alarms of target tracking: above the target for three periods, and well below it for 15 minutes."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from halimede.hosting.metering.variant import CONCURRENT_REQUESTS, INVOCATIONS
from halimede.hosting.scaling.names import DIMENSION, VariantId
from halimede.hosting.scaling.records import PolicyRecord

MINUTE_S = 60
_HIGH_PERIODS = 3
_LOW_S = 15 * MINUTE_S
_LOW_SHARE = 0.9
"""The low alarm's threshold, of the target."""

Document = dict[str, Any]


class State(Protocol):
    """An alarm's state."""

    @property
    def value(self) -> str:
        """Such as ``ALARM``."""


class Alarm(Protocol):
    """An alarm, as far as it matters here."""

    @property
    def state(self) -> State:
        """Its state."""


class AlarmAction(Protocol):
    """What an alarm has done because of its state (`halimede.hosting.metering.alarms.alarm.AlarmAction`)."""

    @property
    def scope(self) -> Scope:
        """Whose alarm it is."""

    @property
    def arn(self) -> str:
        """The policy's ARN."""

    @property
    def alarm(self) -> str:
        """The alarm's name."""

    @property
    def state(self) -> State:
        """The alarm's state."""

    @property
    def threshold(self) -> float | None:
        """The alarm's; None for a composite alarm."""

    @property
    def values(self) -> tuple[float, ...]:
        """What the alarm looked at, the latest first."""


class Alarms(Protocol):
    """The alarms of the host."""

    async def put(self, scope: Scope, request: Mapping[str, Any]) -> None:
        """Make an alarm, or change it, as PutMetricAlarm would."""

    async def delete(self, scope: Scope, names: Collection[str]) -> None:
        """Delete alarms, as far as they are there."""

    def find(self, scope: Scope, name: str) -> Alarm | None:
        """The alarm of a name."""

    def with_action(self, scope: Scope, arn: str) -> Sequence[str]:
        """The names of the alarms that have an action, in any of their states."""

    def add_action(self, prefix: str, run: Callable[[Any], None]) -> None:
        """Let actions whose ARNs begin with a prefix be run by something, at each evaluation while the state lasts."""


async def delete_alarms(alarms: Alarms, scope: Scope, names: Collection[str]) -> None:
    """Delete alarms of policies.

    Raises:
        ApiError: others depend on them.
    """
    try:
        await alarms.delete(scope, sorted(names))
    except ApiError as error:
        if error.status >= 500:
            raise
        msg = f"the alarms of the scaling policy cannot be deleted: {error.message}"
        raise ApiError("FailedResourceAccessException", msg) from None


def alarm_names(variant: VariantId, *, scales_in: bool) -> tuple[str, ...]:
    """New names for the alarms of a policy: the high one, and the low one if it may scale in."""
    kinds = ("AlarmHigh", "AlarmLow") if scales_in else ("AlarmHigh",)
    return tuple(f"{_alarm_prefix(variant)}{kind}-{uuid.uuid4()}" for kind in kinds)


def is_alarm_of(variant: VariantId, name: str) -> bool:
    """Whether an alarm's name is one that `alarm_names` gives to policies of a variant."""
    return name.startswith(_alarm_prefix(variant))


def _alarm_prefix(variant: VariantId) -> str:
    return f"TargetTracking-{variant.resource}-"


def alarm_documents(policy: PolicyRecord) -> list[Document]:
    """The PutMetricAlarm requests of a policy's alarms, in the order of their names."""
    period = period_of(policy.config)
    documents = []
    for index, name in enumerate(policy.alarms):
        is_low = index > 0
        target = policy.config["TargetValue"]
        documents.append(
            {
                "AlarmName": name,
                "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}.",
                "ActionsEnabled": True,
                "AlarmActions": [policy.arn],
                "ComparisonOperator": "LessThanThreshold" if is_low else "GreaterThanThreshold",
                "EvaluationPeriods": _LOW_S // period if is_low else _HIGH_PERIODS,
                "Threshold": target * _LOW_SHARE if is_low else target,
                **_metric(policy.variant, policy.config, period),
            }
        )
    return documents


# metrics

_Predefined = tuple[str, str, int]
"""The metric's name, its statistic, and its period in seconds."""

_PREDEFINED: Mapping[str, _Predefined] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", MINUTE_S),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        CONCURRENT_REQUESTS,
        "Maximum",
        MINUTE_S,
    ),
}


def check_predefined(name: str) -> None:
    """Refuse a predefined metric that variants do not have.

    Raises:
        ApiError: it is none of theirs.
    """
    if name not in _PREDEFINED:
        msg = (
            f"The predefined metric type {name} is not available for scalable dimension {DIMENSION}; it has "
            f"{' and '.join(_PREDEFINED)}"
        )
        raise ApiError("ValidationException", msg)


def period_of(config: Mapping[str, Any]) -> int:
    """The period of a policy's metric, in AWS's seconds."""
    predefined = config.get("PredefinedMetricSpecification")
    return MINUTE_S if predefined is None else _PREDEFINED[predefined["PredefinedMetricType"]][2]


def _metric(variant: VariantId, config: Mapping[str, Any], period: int) -> Document:
    """What an alarm watches."""
    if "PredefinedMetricSpecification" in config:
        name, statistic, _ = _PREDEFINED[config["PredefinedMetricSpecification"]["PredefinedMetricType"]]
        return {
            "Namespace": INVOCATIONS,
            "MetricName": name,
            "Dimensions": [
                {"Name": "EndpointName", "Value": variant.endpoint},
                {"Name": "VariantName", "Value": variant.variant},
            ],
            "Statistic": statistic,
            "Period": period,
        }
    customized = config["CustomizedMetricSpecification"]
    if "Metrics" in customized:
        return {"Metrics": [_query(query, period) for query in customized["Metrics"]]}
    members = ("Namespace", "MetricName", "Dimensions", "Statistic", "Unit")
    return {**{name: customized[name] for name in members if name in customized}, "Period": period}


def _query(query: Mapping[str, Any], period: int) -> Document:
    """A query of metric math, with the period that tracking policies do not say."""
    document = dict(query)
    if "MetricStat" in document:
        document["MetricStat"] = {**document["MetricStat"], "Period": period}
    return document
