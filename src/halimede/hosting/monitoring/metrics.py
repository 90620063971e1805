"""What CloudWatch is told of a job's columns."""

from halimede.hosting.metering.statistics import Values
from halimede.hosting.metering.store import Metric, MetricStore
from halimede.hosting.monitoring.job import Result

NAMESPACE = "/aws/sagemaker/Endpoints/data-metrics"

_UNIT = "None"


def publish(store: MetricStore, result: Result, endpoint: str, schedule: str, when: float) -> None:
    """Count what a job has found.

    Args:
        store: the metrics.
        result: what was found.
        endpoint: the endpoint's name.
        schedule: the schedule's name.
        when: the time of the values, in seconds since 1970.
    """
    dimensions = {"Endpoint": endpoint, "MonitoringSchedule": schedule}
    for column in result.columns:
        if column.total is not None and column.least is not None and column.most is not None:
            values = Values(float(column.present), column.total, column.least, column.most)
            store.merge(Metric.of(NAMESPACE, f"feature_data_{column.name}", dimensions), values, _UNIT, when)
        present = Metric.of(NAMESPACE, f"feature_non_null_{column.name}", dimensions)
        store.add(present, float(column.present), _UNIT, 1.0, when)
        if column.drift is not None:
            drift = Metric.of(NAMESPACE, f"feature_baseline_drift_{column.name}", dimensions)
            store.add(drift, column.drift, _UNIT, 1.0, when)
