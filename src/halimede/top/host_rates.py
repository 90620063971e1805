"""What happened to the variants of a host between two snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass

from halimede.top.host_snapshot import Endpoint, HostSnapshot, VariantCounts

_NOTHING = VariantCounts()


@dataclass(frozen=True, slots=True)
class VariantRates:
    """A variant in the time between two snapshots.

    Attributes:
        requests: sent to instances, a second.
        client_errors, server_errors: answers with 4xx and with 5xx, a second.
        mean_ms, p50_ms, p99_ms: what instances took; None if they answered nothing.
        overhead_ms: mean of the rest of the time that requests were in the host; None likewise.
        hits: the share of requests whose model was loaded, of many; None if there were none.
        lost, compared: copies for a shadow variant that it did not get, and whose answers were compared, a second.
        same_status: the share of copies of which both variants succeeded or both failed; None without copies.
        agreement: the share of comparisons with equal answers; None if there were none.
    """

    requests: float
    client_errors: float
    server_errors: float
    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    overhead_ms: float | None
    hits: float | None
    lost: float
    compared: float
    same_status: float | None
    agreement: float | None


def variant_rates(
    before: HostSnapshot, after: HostSnapshot, endpoint: Endpoint, variant: str
) -> VariantRates:
    """The rates of a variant of an endpoint of `after`.

    Counts that became smaller began anew, so that the earlier ones do not count.
    """
    late = endpoint.counted.get(variant, _NOTHING)
    earlier = before.endpoints.get(endpoint.name) if before.started == after.started else None
    early = _NOTHING if earlier is None else earlier.counted.get(variant, _NOTHING)
    if any(early.sums.get(name, 0) > value for name, value in late.sums.items()):
        early = _NOTHING
    seconds = max(after.time - before.time, 1e-9)

    def total(metric: str) -> float:
        return late.sums.get(metric, 0) - early.sums.get(metric, 0)

    def mean(metric: str) -> float | None:
        count = late.counts.get(metric, 0) - early.counts.get(metric, 0)
        return total(metric) / count if count else None

    return VariantRates(
        total("Invocations") / seconds,
        total("Invocation4XXErrors") / seconds,
        total("Invocation5XXErrors") / seconds,
        _ms(mean("ModelLatency")),
        _ms(percentile(early.latencies, late.latencies, 50)),
        _ms(percentile(early.latencies, late.latencies, 99)),
        _ms(mean("OverheadLatency")),
        mean("ModelCacheHit"),
        total("ShadowCopiesLost") / seconds,
        (late.counts.get("ShadowAgreement", 0) - early.counts.get("ShadowAgreement", 0)) / seconds,
        mean("ShadowStatusAgreement"),
        mean("ShadowAgreement"),
    )


def percentile(before: Mapping[float, int], after: Mapping[float, int], percent: float) -> float | None:
    """The percentile of the values that came between; None if none did."""
    counts = [(value, count - before.get(value, 0)) for value, count in sorted(after.items())]
    needed = sum(count for _, count in counts) * percent / 100
    seen = 0
    for value, count in counts:
        seen += count
        if count and seen >= needed:
            return value
    return None


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
