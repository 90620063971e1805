"""Metrics of the response cache; there are none without one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from halimede.engine.cache.local import LocalCache
from halimede.engine.cache.store import Cache
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import ModelStatistics
from halimede.engine.summaries import LatencySummaries, Summary
from halimede.frontends.family import Family

_US = 1_000

Sample = tuple[str, int | float]
Labelled = tuple[ServedModel, str]


@dataclass(frozen=True, slots=True)
class _Gauge:
    family: Family
    value: Callable[[Cache], int | float]


@dataclass(frozen=True, slots=True)
class _LocalGauge:
    family: Family
    value: Callable[[LocalCache], int | float]


@dataclass(frozen=True, slots=True)
class _Counter:
    family: Family
    value: Callable[[ModelStatistics], int]


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """A summary of a model that has the cache."""

    family: Family
    value: Callable[[LatencySummaries], Summary]


LOCAL_GAUGES = (
    _LocalGauge(
        Family("nv_cache_util", "gauge", "Share of the response cache's size that is in use, 0 to 1"),
        lambda cache: cache.used / cache.size,
    ),
    _LocalGauge(
        Family("nv_cache_num_entries", "gauge", "Responses in the response cache"),
        lambda cache: len(cache),
    ),
    _LocalGauge(
        Family(
            "nv_cache_num_evictions", "gauge", "Responses that made room for others in the response cache"
        ),
        lambda cache: cache.counts.evictions,
    ),
)
GAUGES = (
    _Gauge(
        Family("nv_cache_num_lookups", "gauge", "Look-ups in the response cache"),
        lambda cache: cache.counts.hits + cache.counts.misses,
    ),
    _Gauge(
        Family("nv_cache_num_hits", "gauge", "Look-ups in the response cache that found a response"),
        lambda cache: cache.counts.hits,
    ),
    _Gauge(
        Family("nv_cache_num_misses", "gauge", "Look-ups in the response cache that found none"),
        lambda cache: cache.counts.misses,
    ),
    _Gauge(
        Family("nv_cache_lookup_duration", "gauge", "Time of all look-ups, in microseconds"),
        lambda cache: cache.counts.lookup_ns // _US,
    ),
    _Gauge(
        Family("nv_cache_insertion_duration", "gauge", "Time of all insertions, in microseconds"),
        lambda cache: cache.counts.insertion_ns // _US,
    ),
)
COUNTERS = (
    _Counter(
        Family("nv_cache_num_hits_per_model", "counter", "Requests that the response cache answered"),
        lambda counts: counts.cache_hit.count,
    ),
    _Counter(
        Family(
            "nv_cache_num_misses_per_model",
            "counter",
            "Requests answered whose response was not in the response cache",
        ),
        lambda counts: counts.cache_miss.count,
    ),
)
DURATIONS = (
    _Counter(
        Family(
            "nv_cache_hit_duration_per_model",
            "counter",
            "Time of look-ups that found a response, in microseconds",
        ),
        lambda counts: counts.cache_hit.ns // _US,
    ),
    _Counter(
        Family(
            "nv_cache_miss_duration_per_model",
            "counter",
            "Time of look-ups that found none, and of insertions, in microseconds",
        ),
        lambda counts: counts.cache_miss.ns // _US,
    ),
)
SUMMARIES = (
    CacheSummary(
        Family(
            "nv_cache_hit_summary_per_model",
            "summary",
            "Time of look-ups that found a response, in microseconds",
        ),
        lambda summaries: summaries.cache_hit,
    ),
    CacheSummary(
        Family(
            "nv_cache_miss_summary_per_model",
            "summary",
            "Time of look-ups that found none, and of insertions, in microseconds",
        ),
        lambda summaries: summaries.cache_miss,
    ),
)
FAMILIES = tuple(each.family for each in (*LOCAL_GAUGES, *GAUGES, *COUNTERS, *DURATIONS, *SUMMARIES))


def cached(models: Iterable[Labelled]) -> list[Labelled]:
    """The models that have the cache."""
    return [(model, text) for model, text in models if model.config.response_cache.enable]


def gauges(cache: Cache) -> Iterable[tuple[Family, Sequence[Sample]]]:
    """What the cache does, of all models; a cache outside of the server does not tell what it holds."""
    if isinstance(cache, LocalCache):
        for local in LOCAL_GAUGES:
            yield local.family, [("", local.value(cache))]
    for each in GAUGES:
        yield each.family, [("", each.value(cache))]


def counters(models: Sequence[Labelled], *, durations: bool) -> Iterable[tuple[Family, Sequence[Sample]]]:
    """What it does for each model: counts, and durations if they are wanted."""
    for each in (*COUNTERS, *(DURATIONS if durations else ())):
        yield each.family, [(text, each.value(model.statistics)) for model, text in models]
