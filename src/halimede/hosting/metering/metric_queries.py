"""The queries of one GetMetricData request: metrics, and expressions over them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.metric_data import metric_of
from halimede.hosting.metering.metric_math.evaluation import Expressions
from halimede.hosting.metering.metric_math.values import Context, TimeSeries
from halimede.hosting.metering.statistics import check_statistic
from halimede.hosting.metering.store import MINUTE, MetricStore

_SHORT_PERIODS_S = (1, 5, 10, 20, 30)
"""CloudWatch's periods below a minute, for metrics that are kept more finely than SageMaker's."""

_MAX_QUERIES = 500

Query = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One series of an answer.

    Attributes:
        id: of the query that it answers.
        label: what it is called.
        times, values: of its periods, in order.
    """

    id: str
    label: str
    times: Sequence[datetime]
    values: Sequence[float]


class MetricQueries:
    """The queries of one request, found to be sound."""

    def __init__(self, queries: Sequence[Query], resolution: int = MINUTE) -> None:
        """Check queries.

        Args:
            queries: those of the request.
            resolution: the store's, in seconds, of which periods are multiples.

        Raises:
            ApiError: they are too many, two have the same id, or one asks for what cannot be had.
        """
        ids = [query["Id"] for query in queries]
        twice = sorted({each for each in ids if ids.count(each) > 1}) if len(ids) <= _MAX_QUERIES else ids[:1]
        if twice:
            msg = f"MetricDataQueries: at most {_MAX_QUERIES}, and the Id '{twice[0]}' only once"
            raise ApiError("InvalidParameterValue", msg)
        queries = [
            _checked(query, f"MetricDataQueries.member.{number}", resolution)
            for number, query in enumerate(queries, 1)
        ]
        self._resolution = resolution
        self._queries = queries
        self._metrics = {query["Id"]: query["MetricStat"] for query in queries if "MetricStat" in query}
        texts = {query["Id"]: query["Expression"] for query in queries if "Expression" in query}
        periods = {query["Id"]: query["Period"] for query in queries if "Period" in query}
        self._expressions = Expressions(texts, self._metrics, periods) if texts else None

    async def rows(self, store: MetricStore, begin: int, end: float) -> Sequence[Row]:
        """The series that are asked for; expressions are computed on another thread.

        Args:
            store: the metrics.
            begin: when the first period begins, in seconds since 1970.
            end: values of this time and later do not count.

        Raises:
            ApiError: an expression cannot be computed.
        """
        if self._expressions is None:
            asked = [query["Id"] for query in self._queries if query.get("ReturnData", True)]
            series = {name: [_series(store, self._metrics[name], begin, end)] for name in asked}
        else:
            metrics = {name: _series(store, stat, begin, end) for name, stat in self._metrics.items()}
            period = min((metric.period for metric in metrics.values()), default=self._resolution)
            context = Context(begin, end, period, metrics)
            computed = await asyncio.to_thread(self._expressions.compute, context)
            series = {**{name: [metric] for name, metric in metrics.items()}, **computed}
        return list(self._labelled(series))

    def _labelled(self, series: Mapping[str, Sequence[TimeSeries]]) -> Iterator[Row]:
        for query in self._queries:
            if not query.get("ReturnData", True):
                continue
            found = series[query["Id"]]
            for each in found:
                label = query.get("Label", each.label if "MetricStat" in query else query["Id"])
                if len(found) > 1:
                    label = f"{query['Label']} {each.label}" if "Label" in query else each.label
                times = [datetime.fromtimestamp(when, UTC) for when in each.points]
                yield Row(query["Id"], label, times, list(each.points.values()))


def checked_period(seconds: int, resolution: int = MINUTE) -> int:
    """The period of an answer: the one that is asked for, or the store's resolution for a shorter one of CloudWatch's.

    Raises:
        ApiError: it is neither one of those nor a multiple of the store's resolution.
    """
    if seconds >= resolution and not seconds % resolution:
        return seconds
    if seconds in _SHORT_PERIODS_S:
        return resolution
    short = ", ".join(map(str, _SHORT_PERIODS_S))
    msg = f"The parameter Period must be {short} or a multiple of {resolution} seconds, got {seconds}"
    raise ApiError("InvalidParameterValue", msg)


def _checked(query: Query, path: str, resolution: int) -> Query:
    """The query with periods that can be had.

    Raises:
        ApiError: it asks for what cannot be had.
    """
    if "Expression" in query and "MetricStat" in query:
        both = f"{path}.Expression and {path}.MetricStat"
        msg = f"The parameters {both} are mutually exclusive and you have specified both."
        raise ApiError("ValidationError", msg)
    if "Expression" in query:
        if query["Expression"].lstrip()[:7].upper() == "SELECT ":
            msg = f"Error in expression '{query['Id']}': Metrics Insights (SELECT) is not available in this version"
            raise ApiError("ValidationError", msg)
        return (
            {**query, "Period": checked_period(query["Period"], resolution)} if "Period" in query else query
        )
    if "MetricStat" not in query:
        raise ApiError("ValidationError", f"The parameter {path}.MetricStat is required.")
    stat = query["MetricStat"]
    check_statistic(stat["Stat"])
    return {**query, "MetricStat": {**stat, "Period": checked_period(stat["Period"], resolution)}}


def _series(store: MetricStore, stat: Query, begin: int, end: float) -> TimeSeries:
    """The statistic of one metric, a value for each period that has one."""
    metric = metric_of(stat["Metric"])
    series = store.series(metric)
    points: dict[int, float] = {}
    if series is not None and stat.get("Unit", series.unit) == series.unit:
        for start, values in store.periods(metric, begin, end, stat["Period"]):
            value = values.statistic(stat["Stat"])
            if value is not None:
                points[start] = value
    return TimeSeries(points, stat["Period"], metric.name)
