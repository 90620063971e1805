"""Configurations of policies: what may be asked for, and the policies that they make."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.scaling.alarms import check_predefined, period_of
from halimede.hosting.scaling.decision import Policy
from halimede.hosting.scaling.records import STEPPING, TRACKING, PolicyRecord
from halimede.hosting.scaling.steps import Adjustment, Aggregation, Step, StepScaling
from halimede.hosting.scaling.tracking import TargetTracking

COOLDOWN_S = 300
"""SageMaker's, if a policy does not say."""

MEMBERS = {
    TRACKING: "TargetTrackingScalingPolicyConfiguration",
    STEPPING: "StepScalingPolicyConfiguration",
}
"""Kind of a policy → the member of requests and answers that configures it."""

MAX_STEPS = 20
_GREATEST = 2.0**360
"""Of target values (AWS's bound)."""

_SETTLING_PERIODS = 2
"""After a change, a datapoint is only of the time since then once so many periods are over."""

Config = Mapping[str, Any]


def policy_of(record: PolicyRecord, seconds: Callable[[float], float]) -> Policy:
    """The policy that a record configures.

    Args:
        record: which has been checked.
        seconds: what a time of AWS's takes here.
    """
    config = record.config
    if record.kind == TRACKING:
        return TargetTracking(
            record.name,
            config["TargetValue"],
            seconds(config.get("ScaleOutCooldown", COOLDOWN_S)),
            seconds(config.get("ScaleInCooldown", COOLDOWN_S)),
            config.get("DisableScaleIn", False),
            seconds(_SETTLING_PERIODS * period_of(config)),
        )
    return StepScaling(
        record.name,
        Adjustment(config["AdjustmentType"]),
        _steps(config["StepAdjustments"]),
        seconds(config.get("Cooldown", COOLDOWN_S)),
        config.get("MinAdjustmentMagnitude", 0),
        Aggregation(config.get("MetricAggregationType", Aggregation.AVERAGE)),
    )


def check_config(kind: str, config: Config) -> None:
    """Refuse a configuration that says too little, or contradicts itself.

    Raises:
        ApiError: it does.
    """
    if kind == TRACKING:
        _check_tracking(config)
    else:
        _check_stepping(config)


def _check_not_negative(config: Config, *members: str) -> None:
    for member in members:
        if config.get(member, 0) < 0:
            raise invalid(f"{member} is {config[member]}; it must be 0 or more")


# target tracking


def _check_tracking(config: Config) -> None:
    _check_not_negative(config, "ScaleOutCooldown", "ScaleInCooldown")
    target = config["TargetValue"]
    if not 1 / _GREATEST <= target <= _GREATEST:
        raise invalid(f"TargetValue is {target}; it must be greater than 0, from 2^-360 to 2^360")
    predefined = config.get("PredefinedMetricSpecification")
    customized = config.get("CustomizedMetricSpecification")
    if (predefined is None) is (customized is None):
        raise invalid(
            "a target tracking policy needs either PredefinedMetricSpecification or CustomizedMetricSpecification"
        )
    if predefined is not None:
        check_predefined(predefined["PredefinedMetricType"])
        if "ResourceLabel" in predefined:
            raise invalid("ResourceLabel is for the predefined metric type ALBRequestCountPerTarget only")
    if customized is not None:
        _check_customized(customized)


def _check_customized(config: Config) -> None:
    single = [
        name for name in ("MetricName", "Namespace", "Statistic", "Dimensions", "Unit") if name in config
    ]
    if "Metrics" in config:
        if single:
            raise invalid(
                f"CustomizedMetricSpecification has Metrics, so that {', '.join(single)} has no place in it"
            )
        _check_queries(config["Metrics"])
        return
    for name in ("MetricName", "Namespace", "Statistic"):
        if not config.get(name):
            raise invalid(f"CustomizedMetricSpecification needs {name}, or Metrics")


def _check_queries(queries: Sequence[Config]) -> None:
    if not queries:
        raise invalid("CustomizedMetricSpecification: Metrics is empty")
    for query in queries:
        if ("Expression" in query) is ("MetricStat" in query):
            raise invalid(f"Metrics: '{query['Id']}' needs either Expression or MetricStat")
    returned = [query["Id"] for query in queries if query.get("ReturnData", True)]
    if len(returned) != 1:
        count = "none" if not returned else f"{len(returned)} ({', '.join(returned[:5])})"
        raise invalid(
            f"Metrics: exactly one of them returns data, and here {count}; set ReturnData of the others to false"
        )


# step scaling


def _check_stepping(config: Config) -> None:
    _check_not_negative(config, "Cooldown", "MinAdjustmentMagnitude")
    if "AdjustmentType" not in config:
        raise invalid("a step scaling policy needs AdjustmentType")
    documents = config.get("StepAdjustments", ())
    if not documents:
        raise invalid("a step scaling policy needs at least one of StepAdjustments")
    if len(documents) > MAX_STEPS:
        msg = f"a step scaling policy has at most {MAX_STEPS} step adjustments, got {len(documents)}"
        raise ApiError("LimitExceededException", msg)
    for document in documents:
        _check_step(document, config["AdjustmentType"])
    _check_order(_steps(documents))


def _check_step(document: Config, kind: str) -> None:
    low, high = document.get("MetricIntervalLowerBound"), document.get("MetricIntervalUpperBound")
    if low is None and high is None:
        raise invalid(
            "StepAdjustments: the lower and the upper bound cannot both be null in one step adjustment"
        )
    if low is not None and high is not None and low >= high:
        raise invalid(f"StepAdjustments: the upper bound {high} must be greater than the lower bound {low}")
    if kind == Adjustment.EXACT and document["ScalingAdjustment"] < 0:
        raise invalid(
            f"StepAdjustments: ScalingAdjustment is {document['ScalingAdjustment']}, and an exact capacity is 0 or more"
        )


def _check_order(steps: Sequence[Step]) -> None:
    for each in ("lower", "upper"):
        if sum(math.isinf(getattr(step, each)) for step in steps) > 1:
            raise invalid(f"StepAdjustments: at most one step adjustment can have a null {each} bound")
    for before, after in pairwise(steps):
        if before.upper > after.lower:
            raise invalid(f"StepAdjustments: two intervals overlap from {after.lower} to {before.upper}")
        if before.upper < after.lower:
            raise invalid(f"StepAdjustments: there is a gap from {before.upper} to {after.lower}")
    if -math.inf < steps[0].lower < 0:
        raise invalid(
            "StepAdjustments: with a negative lower bound, one step adjustment must have a null lower bound"
        )
    if math.inf > steps[-1].upper > 0:
        raise invalid(
            "StepAdjustments: with a positive upper bound, one step adjustment must have a null upper bound"
        )


def _steps(documents: Sequence[Config]) -> tuple[Step, ...]:
    steps = [
        Step(
            float(document.get("MetricIntervalLowerBound", -math.inf)),
            float(document.get("MetricIntervalUpperBound", math.inf)),
            document["ScalingAdjustment"],
        )
        for document in documents
    ]
    return tuple(sorted(steps, key=lambda step: (step.lower, step.upper)))
