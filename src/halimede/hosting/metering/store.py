"""All metrics: for each series of values, one aggregate a minute, for fifteen days. Lives on the event loop.

Each account and region has a store of its own.

What is older than a day is folded into hours, so that a series takes no more than some two thousand aggregates.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from halimede.hosting.identity import Scope
from halimede.hosting.metering.statistics import Values

MINUTE = 60
_HOUR = 60
"""In minutes, as all that follows."""

_RETENTION = 15 * 24 * _HOUR
_FINE = 24 * _HOUR
"""Minutes are kept apart for so long."""

Dimensions = tuple[tuple[str, str], ...]
"""Names and values, sorted."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a series of values is of.

    Attributes:
        namespace: such as ``AWS/SageMaker``.
        name: such as ``Invocations``.
        dimensions: such as the endpoint's and the variant's name.
    """

    namespace: str
    name: str
    dimensions: Dimensions = ()

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Mapping[str, str]) -> "Metric":
        """The metric with those dimensions."""
        return cls(namespace, name, tuple(sorted(dimensions.items())))


@dataclass(slots=True)
class Series:
    """The values of a metric.

    Attributes:
        unit: of the values, as CloudWatch calls it.
        minutes: minute since 1970 → the values of that minute, or of the hour that begins with it.
        unsaved: minutes that have changed since they were saved.
        gone: minutes that have been folded into their hours since.
    """

    unit: str = "None"
    minutes: dict[int, Values] = field(default_factory=dict)
    unsaved: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def at(self, minute: int) -> Values:
        """The values of a minute, to be added to."""
        self.unsaved.add(minute)
        values = self.minutes.get(minute)
        if values is None:
            values = self.minutes[minute] = Values()
        return values


class MetricStore:
    """The series, by metric."""

    def __init__(self) -> None:
        self._series: dict[Metric, Series] = defaultdict(Series)

    def __len__(self) -> int:
        return len(self._series)

    def add(self, metric: Metric, value: float, unit: str, count: float, when: float) -> None:
        """Count a value, so many times, at a time in seconds since 1970."""
        self._at(metric, unit, when).add(value, count)

    def add_all(self, metric: Metric, values: Sequence[float], unit: str, when: float) -> None:
        """Count values of which none is negative."""
        self._at(metric, unit, when).add_all(values)

    def merge(self, metric: Metric, values: Values, unit: str, when: float) -> None:
        """Count values that are aggregated already."""
        self._at(metric, unit, when).merge(values)

    def _at(self, metric: Metric, unit: str, when: float) -> Values:
        series = self._series[metric]
        series.unit = unit
        return series.at(int(when // MINUTE))

    def metrics(self) -> list[Metric]:
        """All that there are values of."""
        return list(self._series)

    def series(self, metric: Metric) -> Series | None:
        """The values of a metric."""
        return self._series.get(metric)

    def periods(self, metric: Metric, begin: float, end: float, period: int) -> Iterator[tuple[int, Values]]:
        """Periods in which there are values, in order: each one's beginning and its values.

        Args:
            metric: of what.
            begin: the beginning of the first period, in seconds since 1970, on a whole minute.
            end: values of this time and later do not count.
            period: its length in seconds, a multiple of 60.
        """
        series = self._series.get(metric)
        if series is None:
            return
        minutes, first, last = series.minutes, int(begin // MINUTE), math.ceil(end / MINUTE)
        span = period // MINUTE
        among = range(first, last) if last - first < len(minutes) else minutes
        merged: dict[int, Values] = {}
        for minute in among:
            values = minutes.get(minute)
            if values is not None and first <= minute < last:
                merged.setdefault(first + (minute - first) // span * span, Values()).merge(values)
        for minute in sorted(merged):
            yield minute * MINUTE, merged[minute]

    def forget(self, now: float) -> None:
        """Drop what is too old, and fold what is not new any more into hours."""
        minute = int(now // MINUTE)
        oldest, fine = ((minute - age) // _HOUR * _HOUR for age in (_RETENTION, _FINE))
        for metric, series in list(self._series.items()):
            for each in [each for each in series.minutes if each < oldest or (each < fine and each % _HOUR)]:
                values = series.minutes.pop(each)
                series.unsaved.discard(each)
                series.gone.add(each)
                if each >= oldest:
                    series.at(each // _HOUR * _HOUR).merge(values)
            if not series.minutes:
                del self._series[metric]


class MetricStores:
    """The stores, by account and region."""

    def __init__(self) -> None:
        self._stores: dict[Scope, MetricStore] = {}

    def of(self, scope: Scope) -> MetricStore:
        """The store of an account and region, to be written to."""
        store = self._stores.get(scope)
        if store is None:
            store = self._stores[scope] = MetricStore()
        return store

    def find(self, scope: Scope) -> MetricStore:
        """The store of an account and region, to be read; an empty one if there is none."""
        store = self._stores.get(scope)
        return MetricStore() if store is None else store

    def keep(self, scope: Scope, store: MetricStore) -> None:
        """Keep a store that `find` gave, in which there is something now."""
        self._stores[scope] = store

    def all(self) -> Sequence[tuple[Scope, MetricStore]]:
        """All of them."""
        return list(self._stores.items())

    def count(self, account: str) -> int:
        """How many metrics an account has in all regions."""
        return sum(len(store) for scope, store in self._stores.items() if scope.account == account)

    def forget(self, now: float) -> None:
        """Drop what is too old, and fold what is not new any more into hours."""
        for store in self._stores.values():
            store.forget(now)


def first_period(begin: float, now: float) -> int:
    """Where the first period begins that a time is asked for from: at its minute, or at its hour if it is old."""
    grid = MINUTE if begin >= now - _FINE * MINUTE else _HOUR * MINUTE
    return int(begin // grid) * grid


def oldest_minute(now: float) -> int:
    """Minutes before this one are forgotten."""
    return (int(now // MINUTE) - _RETENTION) // _HOUR * _HOUR
