"""The datapoints of a metric alarm: one for each period of its evaluation range."""

from collections.abc import Sequence
from dataclasses import dataclass

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.metric_definition import MetricDefinition
from halimede.hosting.metering.alarms.states import evaluation_range
from halimede.hosting.metering.store import MetricStore


@dataclass(frozen=True, slots=True)
class Datapoint:
    """A value of a period.

    Attributes:
        when: when the period begins, in seconds since 1970.
        value: the value.
        samples: how many values it was computed from; None for an expression's.
    """

    when: int
    value: float
    samples: float | None = None


Datapoints = Sequence[Datapoint | None]
"""One for each period, the latest first; None where there is none."""


async def datapoints(definition: MetricDefinition, store: MetricStore, end: int) -> Datapoints:
    """The datapoints of the periods that end with a time.

    Args:
        definition: what the alarm watches.
        store: the metrics of its account and region.
        end: the end of the last period, in seconds since 1970, a multiple of the store's resolution.

    Raises:
        ApiError: an expression cannot be computed.
    """
    count, period = evaluation_range(definition.evaluation_periods), definition.period_s
    begin = end - count * period
    if definition.queries is None:
        found = _of_metric(definition, store, begin, end)
    else:
        rows = await definition.queries.rows(store, begin, end)
        if len(rows) > 1:
            raise ApiError(
                "ValidationError", f"the expression has {len(rows)} time series; an alarm can watch only one"
            )
        found = {
            int(when.timestamp()): Datapoint(int(when.timestamp()), value)
            for row in rows
            for when, value in zip(row.times, row.values, strict=True)
        }
    return [found.get(end - number * period) for number in range(1, count + 1)]


def _of_metric(
    definition: MetricDefinition, store: MetricStore, begin: int, end: int
) -> dict[int, Datapoint]:
    metric = definition.metric
    assert metric is not None
    series = store.series(metric)
    if series is None or (definition.unit and definition.unit != series.unit):
        return {}
    found = {}
    for start, values in store.periods(metric, begin, end, definition.period_s):
        value = values.statistic(definition.statistic)
        if value is not None:
            found[start] = Datapoint(start, value, values.count)
    return found
