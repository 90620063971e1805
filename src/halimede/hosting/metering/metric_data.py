"""One entry of PutMetricData: a value, several with their counts, or what is known of many."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.statistics import Values
from halimede.hosting.metering.store import Metric

MAX_ENTRIES = 1_000
"""Of one request (CloudWatch's limit)."""

_MAX_VALUES = 150
_LARGEST = 2.0**360
"""CloudWatch's limit, on both sides of zero."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Values of one metric at one time.

    Attributes:
        metric: of what.
        values: the values.
        unit: of the values.
        when: in seconds since 1970.
    """

    metric: Metric
    values: Values
    unit: str
    when: float

    @classmethod
    def of(
        cls, namespace: str, entry: Mapping[str, Any], now: datetime, oldest: timedelta, future: timedelta
    ) -> "Entry":
        """What an entry says.

        Args:
            namespace: the request's.
            entry: a `MetricDatum`.
            now: the time.
            oldest: how long ago its time may be.
            future: how far ahead its time may be.

        Raises:
            ApiError: it has no value or several, or one that makes no sense, or is of another time.
        """
        name, when = entry["MetricName"], entry.get("Timestamp", now)
        if not now - oldest < when < now + future:
            msg = f"The Timestamp {when.isoformat()} of '{name}' is more than two weeks ago or two hours to come"
            raise _parameter(msg)
        given = [form for form in ("Value", "StatisticValues", "Values") if form in entry]
        if len(given) != 1:
            found = ", ".join(given) or "none of them"
            msg = f"the metric '{name}' needs one of Value, StatisticValues and Values, and has {found}"
            raise ApiError("InvalidParameterCombination", msg)
        metric = metric_of({**entry, "Namespace": namespace})
        return cls(metric, _values(name, entry), entry.get("Unit", "None"), when.timestamp())


def metric_of(request: Mapping[str, Any]) -> Metric:
    """The metric that a request names.

    Raises:
        ApiError: it has a dimension twice.
    """
    dimensions = {each["Name"]: each["Value"] for each in request.get("Dimensions", ())}
    if len(dimensions) != len(request.get("Dimensions", ())):
        raise _parameter(f"the metric '{request['MetricName']}' has a dimension twice")
    return Metric.of(request["Namespace"], request["MetricName"], dimensions)


def _values(name: str, entry: Mapping[str, Any]) -> Values:
    if "StatisticValues" in entry:
        return _aggregate(name, entry["StatisticValues"])
    numbers: Sequence[float] = [entry["Value"]] if "Value" in entry else entry["Values"]
    if not 0 < len(numbers) <= _MAX_VALUES:
        raise _parameter(f"the metric '{name}' has {len(numbers)} Values; it may have 1 to {_MAX_VALUES}")
    counts = entry.get("Counts") or [1.0] * len(numbers)
    if len(counts) != len(numbers):
        raise _parameter(f"the metric '{name}' has {len(numbers)} Values and {len(counts)} Counts")
    values = Values()
    for number, count in zip(numbers, counts, strict=True):
        _check(name, number)
        if not 0 < count <= _LARGEST:
            raise _parameter(f"the metric '{name}' has a Count of {count}; it must be more than 0")
        values.add(number, count)
    return values


def _aggregate(name: str, of: Mapping[str, float]) -> Values:
    count, total, least, most = of["SampleCount"], of["Sum"], of["Minimum"], of["Maximum"]
    for number in (total, least, most):
        _check(name, number)
    if not 0 < count <= _LARGEST or least > most:
        msg = f"the metric '{name}' has StatisticValues with SampleCount {count}, Minimum {least} and Maximum {most}"
        raise _parameter(msg)
    values = Values(count, total, least, most)
    if least == most:  # all values are known
        values = Values()
        values.add(least, count)
    return values


def _check(name: str, number: float) -> None:
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise _parameter(f"The value {number} of '{name}' is not a number between -2^360 and 2^360")


def _parameter(message: str) -> ApiError:
    return ApiError("InvalidParameterValue", message)
