"""What a request names, at any depth: ARNs, accounts and endpoints, found by the shapes of its service's model.

Every text of a request is read as a possible name, except those of the shapes and members in `FREE_TEXT`. A member
that a newer botocore adds is therefore checked from the start.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FREE_TEXT = frozenset(
    {
        # what is passed on to models and jobs
        "EnvironmentKey",
        "EnvironmentValue",
        "ProcessingEnvironmentKey",
        "ProcessingEnvironmentValue",
        "TransformEnvironmentKey",
        "TransformEnvironmentValue",
        "ContainerEntrypointString",
        "ContainerArgument",
        # tags and descriptions
        "TagKey",
        "TagValue",
        "AlarmTagsPropagationTagKey",
        "InferenceExperimentDescription",
        "InferenceExperimentStatusReason",
        "AlarmDescription",
        "StateReason",
        "StateReasonData",
        # labels of metrics
        "DimensionName",
        "DimensionValue",
        "MetricDimensionName",
        "MetricDimensionValue",
        "TargetTrackingMetricDimensionName",
        "TargetTrackingMetricDimensionValue",
        "PredictiveScalingMetricDimensionName",
        "PredictiveScalingMetricDimensionValue",
        "MetricName",
        "TargetTrackingMetricName",
        "PredictiveScalingMetricName",
        "Namespace",
        "MetricNamespace",
        "TargetTrackingMetricNamespace",
        "PredictiveScalingMetricNamespace",
        "MetricLabel",
        "Label",
        "EntityKeyAttributesMapKeyString",
        "EntityKeyAttributesMapValueString",
        "EntityAttributesMapKeyString",
        "EntityAttributesMapValueString",
        # messages and their attributes
        "message",
        "subject",
        "attributeName",
        "attributeValue",
        "MessageAttributes",
        "StringValue",
        # what lists are filtered by; they show only what is the caller's
        "FilterPattern",
        "AlarmNamePrefix",
        "ActionPrefix",
        "logGroupNamePrefix",
        "LogGroupNamePattern",
        # documents in which IAM's simulation looks nothing up
        "policyDocumentType",
        "ContextKeyValueType",
    }
)
"""Shapes and members whose texts name nothing of the host's, although they may look like it.

The endpoint in the dimensions of a metric is found all the same: see `references_of`.
"""

_SERVICES = frozenset({"sagemaker", "autoscaling", "application-autoscaling", "cloudwatch", "logs", "sns"})
"""Those of whose resources the host has some, as ARNs call them. ARNs of others, such as roles, are labels here."""

_PUBLIC = "aws"
"""In place of an account, in ARNs of what AWS offers to everyone."""

_DIMENSION = "EndpointName"
_ENDPOINT_OF_ARN = re.compile(r"arn:[^/]*(?:/sagemaker/|:)endpoint/([^/:]+)(?:[/:].*)?", re.DOTALL)
_ENDPOINT_OF_TARGET = re.compile(r"endpoint/([^/]*)(?:/.*)?", re.DOTALL)
_ENDPOINT_OF_GROUP = re.compile(
    r"(?:arn:[^/]*:log-group:)?/aws/sagemaker/Endpoints/([^:]*)(?::.*)?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Arn:
    """An ARN of a service that the host has.

    Attributes:
        text: the ARN.
        service: such as ``sns``.
        region: its region.
        account: its account.
    """

    text: str
    service: str
    region: str
    account: str


@dataclass(frozen=True, slots=True)
class References:
    """What a request names.

    Attributes:
        arns: those of services that the host has, but for what AWS offers to everyone.
        accounts: those that members hold which are for accounts.
        endpoints: by name, ARN, log group, scalable target, policy or a metric's dimension.
    """

    arns: tuple[Arn, ...] = ()
    accounts: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()


def references_of(shape: Any, document: Mapping[str, Any]) -> References:
    """What a request names.

    Args:
        shape: the operation's input, a `botocore.model.StructureShape`, or None.
        document: the request, checked against it.
    """
    arns: list[Arn] = []
    accounts: list[str] = []
    endpoints: list[str] = []
    for name, kind, text in _texts(shape, document, "") if shape is not None else ():
        if kind == "EndpointName":
            endpoints.append(text)
        if name in FREE_TEXT or kind in FREE_TEXT:
            continue
        if kind == "AccountId" or name == "OwningAccount":
            accounts.append(text)
        if (arn := _arn(text)) is not None:
            arns.append(arn)
        for pattern in (_ENDPOINT_OF_ARN, _ENDPOINT_OF_TARGET, _ENDPOINT_OF_GROUP):
            if (found := pattern.fullmatch(text)) is not None:
                endpoints.append(found[1])
    return References(tuple(arns), tuple(accounts), tuple(endpoints))


def _texts(shape: Any, value: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """Every text in a value: the member that holds it, its shape's name, and the text."""
    kind = shape.type_name
    if kind == "string":
        yield name, shape.name, value
    elif kind == "structure":
        for member, below in shape.members.items():
            if member in value:
                yield from _texts(below, value[member], member)
        if value.get("Name") == _DIMENSION and isinstance(value.get("Value"), str):
            yield _DIMENSION, _DIMENSION, value["Value"]
    elif kind == "list":
        for each in value:
            yield from _texts(shape.member, each, name)
    elif kind == "map":
        for key, each in value.items():
            yield from _texts(shape.key, key, name)
            yield from _texts(shape.value, each, name)


def _arn(text: str) -> Arn | None:
    parts = text.split(":", 5)
    if len(parts) < 6 or parts[0] != "arn" or parts[2] not in _SERVICES or parts[4] == _PUBLIC:
        return None
    return Arn(text, parts[2], parts[3], parts[4])
