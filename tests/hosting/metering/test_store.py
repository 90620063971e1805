"""Series of values: periods, and how long they are kept."""

from halimede.hosting.metering.store import Metric, MetricStore, first_period
from tests.hosting.metering.serving import DAY, HOUR, MINUTE, NOON

METRIC = Metric.of("n", "m", {"b": "2", "a": "1"})


def rows(store: MetricStore, begin: float, end: float, period: int) -> list[tuple[float, float]]:
    return [(start - NOON, values.total) for start, values in store.periods(METRIC, begin, end, period)]


def filled(*offsets: float) -> MetricStore:
    store = MetricStore()
    for offset in offsets:
        store.add(METRIC, 1, "None", 1, NOON + offset)
    return store


def test_the_order_of_dimensions_is_of_no_account() -> None:
    assert Metric.of("n", "m", {"a": "1", "b": "2"}) == METRIC


def test_values_are_of_their_minute() -> None:
    store = filled(-1, 0, 59.9, 60)
    assert rows(store, NOON - 60, NOON + 120, 60) == [(-60, 1), (0, 2), (60, 1)]


def test_the_end_does_not_count() -> None:
    store = filled(0, 60, 120)
    assert rows(store, NOON, NOON + 60, 60) == [(0, 1)]
    assert rows(store, NOON, NOON + 61, 60) == [(0, 1), (60, 1)]
    assert rows(store, NOON + 60, NOON + 120, 60) == [(60, 1)]


def test_periods_begin_with_the_first() -> None:
    store = filled(*(60 * minute for minute in range(10)))
    assert rows(store, NOON + 120, NOON + 600, 300) == [(120, 5), (420, 3)]
    assert rows(store, NOON - 3600, NOON + 3600, 3600) == [(0, 10)]
    assert rows(store, NOON - 1e10, NOON + 1e10, 60)[0] == (0, 1)


def test_a_metric_that_nobody_has_measured_has_no_periods() -> None:
    assert rows(MetricStore(), NOON, NOON + 60, 60) == []


def test_minutes_of_yesterday_become_hours_and_none_are_older_than_fifteen_days() -> None:
    store = MetricStore()
    for minute in range(20 * 24 * 60):
        store.add(METRIC, minute % 7, "None", 1, NOON - minute * MINUTE)
    store.forget(NOON)
    series = store.series(METRIC)
    assert series is not None
    assert len(series.minutes) < 24 * 60 + 60 + 15 * 24 + 1
    assert min(series.minutes) * MINUTE == NOON - 15 * DAY
    [(_, day)] = store.periods(METRIC, NOON - 3 * DAY, NOON - 2 * DAY, int(DAY))
    assert day.count == 24 * 60
    assert day.statistic("p50") is not None
    [*hours] = store.periods(METRIC, NOON - 3 * DAY, NOON - 2 * DAY, 60)
    assert len(hours) == 24
    assert len(rows(store, NOON - HOUR, NOON, 60)) == 60


def test_what_is_folded_is_folded_once() -> None:
    store = filled(-2 * DAY, -2 * DAY + 60)
    store.forget(NOON)
    store.add(METRIC, 1, "None", 1, NOON - 2 * DAY + 120)
    store.forget(NOON)
    store.forget(NOON)
    assert rows(store, NOON - 3 * DAY, NOON, 3600) == [(-2 * DAY, 3)]


def test_a_series_without_values_is_gone() -> None:
    store = filled(-30 * DAY)
    store.forget(NOON)
    assert store.metrics() == []


def test_first_periods_begin_on_the_grid_that_there_is() -> None:
    assert first_period(NOON + 59, NOON) == NOON
    assert first_period(NOON - 2 * DAY + 1800, NOON) == NOON - 2 * DAY
