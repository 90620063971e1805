"""What happened between two snapshots, a row for each model."""

from collections.abc import Sequence
from dataclasses import dataclass

from halimede.top.snapshot import ModelFigures, Snapshot


@dataclass(frozen=True, slots=True)
class ModelRates:
    """One version of a model in the time between two snapshots.

    Attributes:
        figures: the later ones.
        requests: a second, that succeeded.
        failures: a second.
        cancelled: a second; None if the server counts them as failures.
        inferences: rows a second.
        mean_ms, p50_ms, p99_ms: of requests; None if there were none, or the server does not say.
        queue_ms, compute_ms: mean parts of a request; None if there were none.
        batch: rows of a batch; None if there was none.
        hits: the share of requests that the cache answered; None if there were none.
    """

    figures: ModelFigures
    requests: float
    failures: float
    cancelled: float | None
    inferences: float
    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    queue_ms: float | None
    compute_ms: float | None
    batch: float | None
    hits: float | None


def rates(before: Snapshot, after: Snapshot) -> list[ModelRates]:
    """The rows; those with the most time come first, then by name.

    Counts that became smaller began anew, so that the earlier ones do not count.
    """
    seconds = max(after.time - before.time, 1e-9)
    same = before.started == after.started
    rows = []
    for key, figures in after.models.items():
        earlier = before.models.get(key) if same else None
        if earlier is None or earlier.requests > figures.requests or earlier.executions > figures.executions:
            earlier = ModelFigures(key, "")
        rows.append(_row(earlier, figures, seconds, after.bounds_us))
    return sorted(rows, key=lambda row: (-row.requests * (row.mean_ms or 0), -row.requests, row.figures.key))


def _row(before: ModelFigures, after: ModelFigures, seconds: float, bounds: Sequence[float]) -> ModelRates:
    requests = after.requests - before.requests
    executions = after.executions - before.executions
    inferences = after.inferences - before.inferences
    earlier = before.buckets or [0] * len(after.buckets)
    buckets = [late - early for late, early in zip(after.buckets, earlier, strict=True)]
    hits = after.cache_hits - before.cache_hits

    def mean(nanoseconds: int) -> float | None:
        return nanoseconds / requests / 1e6 if requests else None

    return ModelRates(
        after,
        requests / seconds,
        max(0, after.failures - before.failures) / seconds,
        None if after.cancelled is None else max(0, after.cancelled - (before.cancelled or 0)) / seconds,
        inferences / seconds,
        mean(after.request_ns - before.request_ns),
        percentile_ms(buckets, bounds, 50),
        percentile_ms(buckets, bounds, 99),
        mean(after.queue_ns - before.queue_ns),
        mean(after.compute_ns - before.compute_ns),
        inferences / executions if executions else None,
        hits / requests if requests else None,
    )


def percentile_ms(buckets: Sequence[int], bounds_us: Sequence[float], percent: float) -> float | None:
    """The percentile, interpolated within its bucket; None without values. The last bucket has no upper bound."""
    total = sum(buckets)
    if not total:
        return None
    needed, below = total * percent / 100, 0.0
    for place, count in enumerate(buckets):
        if below + count >= needed and count:
            low = bounds_us[place - 1] if place else 0.0
            high = bounds_us[place] if place < len(bounds_us) else low
            return (low + (high - low) * (needed - below) / count) / 1000
        below += count
    return bounds_us[-1] / 1000


def processor_share(before: Snapshot, after: Snapshot) -> float | None:
    """How many cores the server used; None if it does not say."""
    if before.cpu_s is None or after.cpu_s is None or before.started != after.started:
        return None
    return (after.cpu_s - before.cpu_s) / max(after.time - before.time, 1e-9)


def answers(before: Snapshot, after: Snapshot) -> dict[str, float]:
    """Answers a second by the class of their status, such as `http 2xx`."""
    seconds = max(after.time - before.time, 1e-9)
    found: dict[str, float] = {}
    for (protocol, status), count in after.statuses.items():
        name = (
            f"{protocol} {status[0]}xx"
            if status[:1].isdigit() and len(status) == 3
            else f"{protocol} {status}"
        )
        earlier = before.statuses.get((protocol, status), 0) if before.started == after.started else 0
        found[name] = found.get(name, 0.0) + max(0, count - earlier) / seconds
    return {name: rate for name, rate in sorted(found.items()) if rate}
