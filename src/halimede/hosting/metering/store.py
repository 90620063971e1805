"""All metrics: for each series of values, one aggregate a minute, for fifteen days. Lives on the event loop.

Each account and region has a store of its own.

What is older than a day is folded into hours, so that a series takes no more than some two thousand aggregates. A store
of a finer resolution than a minute folds all but its latest 1,440 aggregates into minutes before, for the same reason.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from halimede.hosting.identity import Scope
from halimede.hosting.metering.statistics import Values

MINUTE = 60
_HOUR = 60 * MINUTE
_DAY = 24 * _HOUR
_RETENTION = 15 * _DAY
_FINE = 1_440
"""So many aggregates of a store's resolution are kept apart: minutes for a day."""

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
        minutes: minute since 1970 → the values of that minute, or of the hour that begins with it. In a store of a
            finer resolution, periods of that take the place of minutes.
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
    """The series, by metric.

    Attributes:
        resolution: of which length there is one aggregate each, in seconds; a divisor of 60.
    """

    def __init__(self, resolution: int = MINUTE) -> None:
        self.resolution = resolution
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
        return series.at(int(when // self.resolution))

    def metrics(self) -> list[Metric]:
        """All that there are values of."""
        return list(self._series)

    def series(self, metric: Metric) -> Series | None:
        """The values of a metric."""
        return self._series.get(metric)

    def has(self, metric: Metric, when: float) -> bool:
        """Whether there are values at a time, to the store's resolution."""
        series = self._series.get(metric)
        return series is not None and int(when // self.resolution) in series.minutes

    def periods(self, metric: Metric, begin: float, end: float, period: int) -> Iterator[tuple[int, Values]]:
        """Periods in which there are values, in order: each one's beginning and its values.

        Args:
            metric: of what.
            begin: the beginning of the first period, in seconds since 1970, a multiple of the store's resolution.
            end: values of this time and later do not count.
            period: its length in seconds, a multiple of the store's resolution.
        """
        series = self._series.get(metric)
        if series is None:
            return
        minutes, length = series.minutes, self.resolution
        first, last, span = int(begin // length), math.ceil(end / length), period // length
        among = range(first, last) if last - first < len(minutes) else minutes
        merged: dict[int, Values] = {}
        for minute in among:
            values = minutes.get(minute)
            if values is not None and first <= minute < last:
                merged.setdefault(first + (minute - first) // span * span, Values()).merge(values)
        for minute in sorted(merged):
            yield minute * length, merged[minute]

    def forget(self, now: float) -> None:
        """Drop what is too old, and fold what is not new any more into hours."""
        length = self.resolution
        oldest, hours = oldest_time(now) // length, _floor(now - _DAY, _HOUR) // length
        minutes = max(hours, _floor(now - _FINE * length, MINUTE) // length)
        an_hour, a_minute = _HOUR // length, MINUTE // length
        for metric, series in list(self._series.items()):
            old = [
                each
                for each in series.minutes
                if each < minutes and (each < oldest or each % (an_hour if each < hours else a_minute))
            ]
            for each in old:
                values = series.minutes.pop(each)
                series.unsaved.discard(each)
                series.gone.add(each)
                if each >= oldest:
                    span = an_hour if each < hours else a_minute
                    series.at(each // span * span).merge(values)
            if not series.minutes:
                del self._series[metric]


class MetricStores:
    """The stores, by account and region.

    Attributes:
        resolution: of all of them, in seconds.
    """

    def __init__(self, resolution: int = MINUTE) -> None:
        self.resolution = resolution
        self._stores: dict[Scope, MetricStore] = {}

    def of(self, scope: Scope) -> MetricStore:
        """The store of an account and region, to be written to."""
        store = self._stores.get(scope)
        if store is None:
            store = self._stores[scope] = MetricStore(self.resolution)
        return store

    def find(self, scope: Scope) -> MetricStore:
        """The store of an account and region, to be read; an empty one if there is none."""
        store = self._stores.get(scope)
        return MetricStore(self.resolution) if store is None else store

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


def first_period(begin: float, now: float, resolution: int = MINUTE) -> int:
    """Where the first period begins that a time is asked for from: at its minute, or at its hour if it is old.

    Args:
        begin: the time, in seconds since 1970.
        now: the time that it is.
        resolution: the store's, in seconds; periods of that take the place of minutes while they are kept apart.
    """
    if begin >= now - _FINE * resolution:
        return _floor(begin, resolution)
    return _floor(begin, MINUTE if begin >= now - _DAY else _HOUR)


def oldest_time(now: float) -> int:
    """What is before this time is forgotten; in seconds since 1970."""
    return _floor(int(now // MINUTE) * MINUTE - _RETENTION, _HOUR)


def _floor(when: float, length: int) -> int:
    """When the period began in which a time lies."""
    return int(when // length) * length
