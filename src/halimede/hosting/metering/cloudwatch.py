"""CloudWatch's operations on metrics."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from halimede.hosting.api.services import About, Operation, Service, names_nothing
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from halimede.hosting.metering.metric_data import MAX_ENTRIES, Entry, metric_of
from halimede.hosting.metering.metric_queries import MetricQueries, checked_period
from halimede.hosting.metering.statistics import check_extended
from halimede.hosting.metering.store import Metric, MetricStore, MetricStores, first_period
from halimede.hosting.paging import begin_of

_MAX_POINTS = 1_440
"""Of one answer of GetMetricStatistics (CloudWatch's limit)."""

_MAX_VALUES = 100_800
"""Of one answer of GetMetricData (CloudWatch's limit)."""

_MAX_SERIES = 10_000
"""So many metrics an account may have before users' own are refused."""

_OLDEST = timedelta(days=14)
_FUTURE = timedelta(hours=2)
_RECENT_S = 3 * 3600
_LISTED = 500

Request = Mapping[str, Any]


def _nothing() -> None:
    """Nothing has to be done."""


def cloudwatch_service(
    stores: MetricStores,
    refresh: Callable[[], None] = _nothing,
    now: Callable[[], float] = time.time,
    alarms: Mapping[str, Operation] = MappingProxyType({}),
    about: About = names_nothing,
) -> Service:
    """PutMetricData, GetMetricStatistics, GetMetricData and ListMetrics over the caller's account and region.

    Args:
        stores: the metrics.
        refresh: called before they are read.
        now: the time, in seconds since 1970.
        alarms: the operations on alarms.
        about: the endpoints of the alarms that a request names.
    """

    def reading(caller: Caller) -> CloudWatch:
        return CloudWatch(stores.find(caller.scope), refresh, now)

    async def put_metric_data(request: Request, caller: Caller) -> Mapping[str, Any]:
        store, room = stores.find(caller.scope), _MAX_SERIES - stores.count(caller.account)
        answer = await CloudWatch(store, refresh, now, room).put_metric_data(request, caller)
        stores.keep(caller.scope, store)
        return answer

    return Service(
        "cloudwatch",
        {
            "PutMetricData": put_metric_data,
            "GetMetricStatistics": lambda request, caller: reading(caller).get_metric_statistics(
                request, caller
            ),
            "GetMetricData": lambda request, caller: reading(caller).get_metric_data(request, caller),
            "ListMetrics": lambda request, caller: reading(caller).list_metrics(request, caller),
            **alarms,
        },
        refusal="ValidationError",
        about=about,
    )


class CloudWatch:
    """The operations over one store. Lives on the event loop."""

    def __init__(
        self,
        store: MetricStore,
        refresh: Callable[[], None],
        now: Callable[[], float],
        room: int = _MAX_SERIES,
    ) -> None:
        self._store = store
        self._refresh = refresh
        self._now = now
        self._room = room

    async def put_metric_data(self, request: Request, _: Caller) -> dict[str, Any]:
        """Take values of a user's own metrics."""
        namespace = request["Namespace"]
        if namespace.startswith("AWS/"):
            raise _parameter(f"The value AWS/ for parameter Namespace is reserved: '{namespace}'")
        if request.get("EntityMetricData"):
            raise _parameter("EntityMetricData is not available in this version; use MetricData")
        data = request.get("MetricData", ())
        if not 0 < len(data) <= MAX_ENTRIES:
            raise _parameter(f"MetricData must have 1 to {MAX_ENTRIES} entries, got {len(data)}")
        now = datetime.fromtimestamp(self._now(), UTC)
        entries = [Entry.of(namespace, each, now, _OLDEST, _FUTURE) for each in data]
        fresh = {entry.metric for entry in entries if self._store.series(entry.metric) is None}
        if fresh and len(fresh) > self._room:
            msg = (
                f"there are {_MAX_SERIES - self._room} metrics, and {len(fresh)} new ones would be more than the "
                f"{_MAX_SERIES} that this host keeps of an account; use fewer values of dimensions"
            )
            raise ApiError("LimitExceeded", msg)
        for entry in entries:
            self._store.merge(entry.metric, entry.values, entry.unit, entry.when)
        return {}

    async def get_metric_statistics(self, request: Request, _: Caller) -> dict[str, Any]:
        """One metric's statistics, a point a period."""
        simple, extended = request.get("Statistics", ()), request.get("ExtendedStatistics", ())
        if not simple and not extended:
            msg = "At least one of Statistics and ExtendedStatistics must be given"
            raise ApiError("InvalidParameterCombination", msg)
        for name in extended:
            check_extended(name)
        metric = metric_of(request)
        period = checked_period(request["Period"], self._store.resolution)
        begin, end = self._span(request)
        if (end - begin) / period > _MAX_POINTS:
            msg = (
                f"You have requested up to {math.ceil((end - begin) / period)} datapoints, which exceeds the limit of "
                f"{_MAX_POINTS}. You may reduce the datapoints requested by increasing Period, or decreasing the time "
                f"range."
            )
            raise ApiError("InvalidParameterCombination", msg)
        self._refresh()
        unit = self._unit(metric, request)
        points = []
        for start, values in self._store.periods(metric, begin, end, period) if unit else ():
            point: dict[str, Any] = {"Timestamp": datetime.fromtimestamp(start, UTC), "Unit": unit}
            point |= {name: values.statistic(name) for name in simple}
            percentiles = {name: values.statistic(name) for name in extended}
            known = {name: value for name, value in percentiles.items() if value is not None}
            if known:
                point["ExtendedStatistics"] = known
            if known or simple:
                points.append(point)
        return {"Label": metric.name, "Datapoints": points}

    async def get_metric_data(self, request: Request, _: Caller) -> dict[str, Any]:
        """Several metrics' statistics and what is computed of them, as rows of times and values."""
        begin, end = self._span(request)
        queries = MetricQueries(request["MetricDataQueries"], self._store.resolution)
        self._refresh()
        rows = await queries.rows(self._store, begin, end)
        descending = request.get("ScanBy", "TimestampDescending") == "TimestampDescending"
        skipped = begin_of(request.get("NextToken"))
        left = min(request.get("MaxDatapoints", _MAX_VALUES), _MAX_VALUES)
        results, more = [], False
        for row in rows:
            times, values = row.times, row.values
            if descending:
                times, values = times[::-1], values[::-1]
            taken = slice(skipped, skipped + left)
            more = more or len(times) > skipped + left
            skipped, left = max(0, skipped - len(times)), left - len(times[taken])
            results.append(
                {
                    "Id": row.id,
                    "Label": row.label,
                    "Timestamps": times[taken],
                    "Values": values[taken],
                    "StatusCode": "PartialData" if more else "Complete",
                }
            )
        answer: dict[str, Any] = {"MetricDataResults": results, "Messages": []}
        if more:
            given = sum(len(result["Values"]) for result in results)
            answer["NextToken"] = str(begin_of(request.get("NextToken")) + given)
        return answer

    def _span(self, request: Request) -> tuple[int, float]:
        """When the first period begins, and when the last one ends."""
        begin, end = request["StartTime"].timestamp(), request["EndTime"].timestamp()
        if begin >= end:
            raise _parameter("The parameter StartTime must be less than the parameter EndTime.")
        return first_period(begin, self._now(), self._store.resolution), end

    def _unit(self, metric: Metric, request: Request) -> str:
        """The unit of a metric's values, "" if there are none of the one that is asked for."""
        series = self._store.series(metric)
        if series is None or request.get("Unit", series.unit) != series.unit:
            return ""
        return series.unit

    async def list_metrics(self, request: Request, _: Caller) -> dict[str, Any]:
        """The metrics that there are values of."""
        self._refresh()
        recent = self._now() - _RECENT_S if "RecentlyActive" in request else 0
        found = [
            {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
            }
            for metric in sorted(
                self._store.metrics(), key=lambda each: (each.namespace, each.name, each.dimensions)
            )
            if _is_listed(metric, request) and (not recent or self._newest(metric) > recent)
        ]
        begin = begin_of(request.get("NextToken"))
        answer: dict[str, Any] = {"Metrics": found[begin : begin + _LISTED]}
        if begin + _LISTED < len(found):
            answer["NextToken"] = str(begin + _LISTED)
        return answer

    def _newest(self, metric: Metric) -> int:
        series = self._store.series(metric)
        return (max(series.minutes, default=0) + 1) * self._store.resolution if series is not None else 0


def _is_listed(metric: Metric, request: Request) -> bool:
    dimensions = dict(metric.dimensions)
    wanted: Sequence[Mapping[str, str]] = request.get("Dimensions", ())
    return (
        request.get("Namespace", metric.namespace) == metric.namespace
        and request.get("MetricName", metric.name) == metric.name
        and all(
            each["Name"] in dimensions
            and each.get("Value", dimensions[each["Name"]]) == dimensions[each["Name"]]
            for each in wanted
        )
    )


def _parameter(message: str) -> ApiError:
    return ApiError("InvalidParameterValue", message)
