"""What a metric alarm watches, as PutMetricAlarm's request says it."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.refusals import refused
from halimede.hosting.metering.alarms.states import MissingData
from halimede.hosting.metering.extended_statistics import parse_extended
from halimede.hosting.metering.metric_data import metric_of
from halimede.hosting.metering.metric_queries import MetricQueries
from halimede.hosting.metering.pace import AWS_PERIOD_S, Pace
from halimede.hosting.metering.store import Metric

Request = Mapping[str, Any]
Result = TypeVar("Result")

_COMPARISONS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "GreaterThanOrEqualToThreshold": (operator.ge, "greater than or equal to"),
    "GreaterThanThreshold": (operator.gt, "greater than"),
    "LessThanOrEqualToThreshold": (operator.le, "less than or equal to"),
    "LessThanThreshold": (operator.lt, "less than"),
}

_OF_ONE_METRIC = ("MetricName", "Namespace", "Dimensions", "Period", "Unit", "Statistic", "ExtendedStatistic")

_UNAVAILABLE = {
    "EvaluationCriteria": "alarms on PromQL queries are not available in this version; use MetricName or Metrics",
    "EvaluationInterval": "it is only for alarms on PromQL queries, which are not available in this version",
    "ThresholdMetricId": "anomaly detection is not available in this version; use Threshold",
    "WarmUpConfiguration": "warm-up periods are not available in this version",
    "ActionConfiguration": "notifications, which it configures, are not available in this version",
}

_FINE_PERIODS = (10, 20, 30)
_DAY, _WEEK, _HOUR = 86_400, 604_800, 3_600
_MAX_METRICS = 10


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """What a metric alarm watches.

    Attributes:
        metric: the metric; None if the alarm has queries.
        queries: the metrics and expressions, of which one is the alarm's; None if it has a metric.
        statistic: of the metric; "" with queries.
        unit: the only one that counts; "" for any.
        period: AWS's seconds.
        period_s: what a period takes here, in seconds.
        evaluation_periods: how many datapoints count.
        datapoints_to_alarm: how many of them must breach.
        comparison: how datapoints are compared with the threshold.
        threshold: the threshold.
        missing: what stands for missing datapoints.
        few_samples: percentiles of fewer values than this are not judged.
    """

    metric: Metric | None
    queries: MetricQueries | None
    statistic: str
    unit: str
    period: int
    period_s: int
    evaluation_periods: int
    datapoints_to_alarm: int
    comparison: str
    threshold: float
    missing: MissingData
    few_samples: float

    def is_breaching(self, value: float) -> bool:
        """Whether a datapoint breaches the threshold."""
        return _COMPARISONS[self.comparison][0](value, self.threshold)

    @property
    def comparison_text(self) -> str:
        """How a reason says the comparison, such as ``greater than``."""
        return _COMPARISONS[self.comparison][1]


def metric_definition(request: Request, pace: Pace) -> MetricDefinition:
    """What a PutMetricAlarm request says.

    Args:
        request: it, checked against the service's model.
        pace: how long AWS's periods take here.

    Raises:
        ApiError: it cannot be so (``ValidationError``).
    """
    for member, why in _UNAVAILABLE.items():
        if member in request:
            raise refused(f"{member}: {why}")
    if "WallClockWindow" in request.get("EvaluationWindow", {}):
        raise refused("EvaluationWindow: WallClockWindow is not available in this version; use SlidingWindow")
    comparison = _needed(request, "ComparisonOperator")
    if comparison not in _COMPARISONS:
        raise refused(
            f"ComparisonOperator: anomaly detection, which {comparison} is for, is not available in this version; use "
            f"one of {', '.join(_COMPARISONS)}"
        )
    threshold = float(_needed(request, "Threshold"))
    treatment = request.get("TreatMissingData", MissingData.MISSING)
    if treatment not in list(MissingData):
        raise refused(
            f"The value {treatment} is not supported for TreatMissingData parameter. Supported values are "
            f"[breaching, notBreaching, ignore, missing]."
        )
    metric: Metric | None = None
    queries: MetricQueries | None = None
    if "Metrics" in request:
        queries, period = _queries(request, pace)
        statistic = ""
    else:
        metric, statistic, period = _metric(request)
    evaluation_periods = _needed(request, "EvaluationPeriods")
    datapoints_to_alarm = request.get("DatapointsToAlarm", evaluation_periods)
    if datapoints_to_alarm > evaluation_periods:
        raise refused("DatapointsToAlarm must be less than or equal to EvaluationPeriods")
    _check_span(period, evaluation_periods)
    return MetricDefinition(
        metric,
        queries,
        statistic,
        request.get("Unit", ""),
        period,
        round(pace.seconds(period)),
        evaluation_periods,
        datapoints_to_alarm,
        comparison,
        threshold,
        MissingData(treatment),
        _few_samples(request, statistic),
    )


def _needed(request: Request, member: str) -> Any:
    if member not in request:
        raise refused(f"{member} must not be null")
    return request[member]


def _metric(request: Request) -> tuple[Metric, str, int]:
    """The metric, statistic and period of an alarm on one metric."""
    for member in ("MetricName", "Namespace", "Period"):
        _needed(request, member)
    if ("Statistic" in request) == ("ExtendedStatistic" in request):
        both = "both" if "Statistic" in request else "neither"
        raise refused(
            f"Exactly one of Statistic and ExtendedStatistic must be given, and there is {both} of them"
        )
    statistic = request.get("Statistic", "")
    if not statistic:
        statistic = request["ExtendedStatistic"]
        if parse_extended(statistic) is None:
            raise refused(f"The value {statistic} for parameter ExtendedStatistic is not supported.")
    return _reworded(lambda: metric_of(request)), statistic, _period(request["Period"])


def _queries(request: Request, pace: Pace) -> tuple[MetricQueries, int]:
    """The queries of an alarm on metric math, with periods as they are here, and the period that all of them have."""
    for member in _OF_ONE_METRIC:
        if member in request:
            raise refused(f"The parameters Metrics and {member} are mutually exclusive; say it in Metrics")
    queries: Sequence[Request] = request["Metrics"]
    if sum(query.get("ReturnData", True) for query in queries) != 1:
        raise refused("Exactly one element of the metrics list should return data.")
    for query in queries:
        if "AccountId" in query:
            raise refused(
                f"Metrics: '{query['Id']}' has an AccountId; alarms on other accounts are not available"
            )
    stats = [query["MetricStat"] for query in queries if "MetricStat" in query]
    if not 0 < len(stats) <= _MAX_METRICS:
        raise refused(f"Metrics must have 1 to {_MAX_METRICS} elements with a MetricStat, got {len(stats)}")
    for stat in stats:
        for member in ("Namespace", "MetricName"):
            if member not in stat["Metric"]:
                raise refused(f"Metrics: a MetricStat's Metric has no {member}")
    periods = {stat["Period"] for stat in stats} | {query["Period"] for query in queries if "Period" in query}
    if len(periods) > 1:
        listed = ", ".join(map(str, sorted(periods)))
        raise refused(f"All elements of the metrics list must have the same Period; there are {listed}")
    period = _period(periods.pop())
    scaled = [_scaled(query, round(pace.seconds(period))) for query in queries]
    return _reworded(lambda: MetricQueries(scaled, pace.period_s)), period


def _scaled(query: Request, period_s: int) -> Request:
    scaled = dict(query)
    if "MetricStat" in query:
        scaled["MetricStat"] = {**query["MetricStat"], "Period": period_s}
    if "Period" in query:
        scaled["Period"] = period_s
    return scaled


def _reworded(work: Callable[[], Result]) -> Result:
    """The result of some work whose refusals are to be those of alarms."""
    try:
        return work()
    except ApiError as error:
        raise refused(error.message) from None


def _period(seconds: int) -> int:
    if seconds in _FINE_PERIODS:
        raise refused(
            f"A Period of {seconds} is not available in this version; use {AWS_PERIOD_S} or a multiple of it"
        )
    if seconds % AWS_PERIOD_S:
        raise refused(f"Period must be 10, 20, 30 or a multiple of {AWS_PERIOD_S}")
    return seconds


def _check_span(period: int, evaluation_periods: int) -> None:
    most, text = (_DAY, "a day") if period < _HOUR else (_WEEK, "seven days")
    if period * evaluation_periods > most:
        raise refused(
            f"Metrics cannot be checked across more than {text} (EvaluationPeriods * Period must be <= {most})."
        )


def _few_samples(request: Request, statistic: str) -> float:
    """Fewer values make a percentile that is not to be judged; 0 if all are."""
    rule = request.get("EvaluateLowSampleCountPercentile", "evaluate")
    if rule not in ("evaluate", "ignore"):
        raise refused(
            f"The value {rule} is not supported for EvaluateLowSampleCountPercentile parameter. Supported values are "
            f"[evaluate, ignore]."
        )
    extended = parse_extended(statistic)
    if rule == "evaluate" or extended is None or extended.kind != "p":
        return 0.0
    tail = min(extended.high, 100 - extended.high)
    return 1_000 / tail if tail > 0 else 0.0
