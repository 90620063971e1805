"""What is counted of one variant, with the names, units and rules of SageMaker's metrics."""

from collections.abc import Iterable

from halimede.hosting.metering.shadows import SHADOW_METRICS, observed
from halimede.hosting.metering.statistics import Values
from halimede.hosting.metering.store import Dimensions, Metric, MetricStore
from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.routing.counts import CountingMeter

INVOCATIONS = "AWS/SageMaker"
"""Namespace of what is counted of requests."""

CONCURRENT_REQUESTS = "ConcurrentRequestsPerModel"
"""The metric of requests that an instance has not answered, counted each second."""

INSTANCES = "/aws/sagemaker/Endpoints"
"""Namespace of what is measured of instances."""

METRICS = (
    "Invocations",
    "InvocationsPerInstance",
    "Invocation4XXErrors",
    "Invocation5XXErrors",
    "InvocationModelErrors",
    "ModelLatency",
    "OverheadLatency",
    "ModelCacheHit",
    "ModelLoadingWaitTime",
    "ModelDownloadingTime",
    "ModelLoadingTime",
    "ModelUnloadingTime",
    "DataCaptureRecords",
    "DataCaptureRecordsUploaded",
    "DataCaptureRecordsTooLarge",
    "DataCaptureRecordsDropped",
    "DataCaptureUploadFailures",
)
"""All that is counted of requests."""

_MICROSECOND = 1_000


class VariantMeter(CountingMeter):
    """Counts the invocations of a variant, and what becomes of its models (`InvocationMeter`, `ModelMeter`).

    Attributes:
        sums: metric's name → the sum of all its values so far.
        counts: metric's name → how many values those were.
        latencies: all values of `ModelLatency` so far, in microseconds.
        used: when it last had instances that take requests, or anything to put into the store, in seconds since 1970;
            0 if it never did.
    """

    def __init__(
        self,
        store: MetricStore,
        endpoint: str,
        variant: str,
        config: str = "",
        whole: "VariantMeter | None" = None,
    ) -> None:
        """A meter that has counted nothing.

        Args:
            store: where what it counts goes.
            endpoint: the endpoint's name.
            variant: the variant's name.
            config: the endpoint configuration of which only instances are counted; "" for any.
            whole: the meter of the variant's instances of any configuration, which counts the same once more.
        """
        super().__init__()
        self._store = store
        self._whole = whole
        dimensions = (("EndpointName", endpoint), ("VariantName", variant))
        self._dimensions = (("EndpointConfigName", config), *dimensions) if config else dimensions
        self.used = 0.0
        self.sums: dict[str, float] = dict.fromkeys((*METRICS, *SHADOW_METRICS), 0)
        self.counts: dict[str, float] = dict.fromkeys((*METRICS, *SHADOW_METRICS), 0)
        self.latencies = Values()

    # the store

    def flush(self, when: float) -> None:
        """Put what has been counted into the store, as of a time in seconds since 1970."""
        counts = self.take()
        if counts.sent or counts.answered:
            self.used = when
        if self._whole is not None:
            self._whole.add(counts)
        if counts.sent:
            self._add("Invocations", 1, counts.sent, when)
            self._add("InvocationsPerInstance", counts.per_instance / counts.sent, counts.sent, when)
        if counts.answered:
            for name, number in (
                ("Invocation4XXErrors", counts.client_errors),
                ("Invocation5XXErrors", counts.server_errors),
                ("InvocationModelErrors", counts.model_errors),
            ):
                self._shares(name, number, counts.answered, when)
        if counts.placed:
            self._shares("ModelCacheHit", counts.hits, counts.placed, when)
        for name, number in (
            ("DataCaptureRecords", counts.captured),
            ("DataCaptureRecordsUploaded", counts.capture_uploaded),
            ("DataCaptureRecordsTooLarge", counts.capture_too_large),
            ("DataCaptureRecordsDropped", counts.capture_dropped),
            ("DataCaptureUploadFailures", counts.capture_upload_failures),
        ):
            if number:
                self._add(name, 1, number, when)
        for name, durations in (
            ("ModelLatency", counts.model_ns),
            ("OverheadLatency", counts.overhead_ns),
            ("ModelLoadingWaitTime", counts.wait_ns),
            ("ModelDownloadingTime", counts.download_ns),
            ("ModelLoadingTime", counts.load_ns),
            ("ModelUnloadingTime", counts.unload_ns),
        ):
            if durations:
                self.sums[name] += sum(durations) / _MICROSECOND
                self.counts[name] += len(durations)
                metric = Metric(INVOCATIONS, name, self._dimensions)
                values = Values()
                values.add_all([duration / _MICROSECOND for duration in durations])
                self._store.merge(metric, values, "Microseconds", when)
                if name == "ModelLatency":
                    self.latencies.merge(values)
        if counts.shadow:
            self._flush_shadow(counts.shadow, when)

    def _flush_shadow(self, counts: ShadowCounts, when: float) -> None:
        for name, output, unit, values in observed(counts):
            dimensions: Dimensions = self._dimensions
            if output:
                dimensions = tuple(sorted((*dimensions, ("OutputName", output))))
            else:
                self.sums[name] += sum(values)
                self.counts[name] += len(values)
            self._store.add_all(Metric(INVOCATIONS, name, dimensions), values, unit, when)

    def end_period(self, when: float) -> None:
        """A minute, or the shortest period of the store, is over: without a request it has zeros.

        Scaling in rests on those.

        Args:
            when: a moment of it, in seconds since 1970.
        """
        for name in ("Invocations", "InvocationsPerInstance"):
            if not self._store.has(Metric(INVOCATIONS, name, self._dimensions), when):
                self._add(name, 0, 1, when)

    def concurrent(self, counts: Iterable[int], when: float) -> None:
        """So many requests are under way at each instance."""
        metric = Metric(INVOCATIONS, CONCURRENT_REQUESTS, self._dimensions)
        for count in counts:
            self._store.add(metric, count, "None", 1, when)

    def gauge(self, name: str, value: float, unit: str, when: float) -> None:
        """A value that was measured of an instance."""
        self._store.add(Metric(INSTANCES, name, self._dimensions), value, unit, 1, when)

    def _add(self, name: str, value: float, count: int, when: float) -> None:
        self.sums[name] += value * count
        self.counts[name] += count
        self._store.add(Metric(INVOCATIONS, name, self._dimensions), value, "None", count, when)

    def _shares(self, name: str, ones: int, of: int, when: float) -> None:
        """So many requests count one, and the others zero: their average is a share."""
        if ones:
            self._add(name, 1, ones, when)
        if of > ones:
            self._add(name, 0, of - ones, when)
