"""What is counted of asynchronous endpoints, with the names and units of SageMaker's metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable

from halimede.hosting.identity import EndpointId, Scope
from halimede.hosting.metering.store import Metric, MetricStore
from halimede.hosting.metering.variant import INVOCATIONS

DOWNLOAD = "RequestDownloadLatency"
UPLOAD = "ResponseUploadLatency"
IN_BACKLOG = "TimeInBacklog"
PROCESSING = "TotalProcessingTime"
NOTIFICATION_FAILURES = "NotificationFailures"

_UNITS = {
    DOWNLOAD: ("Microseconds", 1e6),
    UPLOAD: ("Microseconds", 1e6),
    IN_BACKLOG: ("Milliseconds", 1e3),
    PROCESSING: ("Milliseconds", 1e3),
}


class AsyncMeter:
    """Counts. Lives on the event loop; `flush` takes what was counted to the store of the endpoint's scope."""

    def __init__(self, store_of: Callable[[Scope], MetricStore]) -> None:
        self._store_of = store_of
        self._counts: Counter[tuple[EndpointId, str, str]] = Counter()
        self._times: defaultdict[tuple[EndpointId, str, str], list[float]] = defaultdict(list)

    def count(self, endpoint: EndpointId, variant: str, metric: str) -> None:
        """Something happened once."""
        self._counts[endpoint, variant, metric] += 1

    def took(self, endpoint: EndpointId, variant: str, metric: str, seconds: float) -> None:
        """Something took so long."""
        unit = _UNITS[metric][1]
        self._times[endpoint, variant, metric].append(max(seconds, 0.0) * unit)

    def flush(self, when: float) -> None:
        """Put into the stores what was counted, as of a time in seconds since 1970."""
        counts, self._counts = self._counts, Counter()
        times, self._times = self._times, defaultdict(list)
        for (endpoint, variant, name), number in counts.items():
            self._store_of(endpoint.scope).add(_metric(endpoint, variant, name), 1, "Count", number, when)
        for (endpoint, variant, name), values in times.items():
            metric = _metric(endpoint, variant, name)
            self._store_of(endpoint.scope).add_all(metric, values, _UNITS[name][0], when)

    def backlog(self, endpoint: EndpointId, size: int, instances: int, oldest_s: float, when: float) -> None:
        """So many requests of an endpoint with so many instances wait or are being worked on, one of them so long."""
        store = self._store_of(endpoint.scope)
        dimensions = (("EndpointName", endpoint.name),)
        for name, value, unit in (
            ("ApproximateBacklogSize", size, "Count"),
            ("ApproximateBacklogSizePerInstance", size / max(instances, 1), "Count"),
            ("ApproximateAgeOfOldestRequest", oldest_s, "Seconds"),
            ("HasBacklogWithoutCapacity", int(size > 0 and not instances), "Count"),
        ):
            store.add(Metric(INVOCATIONS, name, dimensions), value, unit, 1, when)


def _metric(endpoint: EndpointId, variant: str, name: str) -> Metric:
    return Metric(INVOCATIONS, name, (("EndpointName", endpoint.name), ("VariantName", variant)))
