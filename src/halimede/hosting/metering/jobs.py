"""Metrics of the instances of transform jobs, as CloudWatch has them: by ``Host``, which is ``JOB/INSTANCE``."""

from halimede.hosting.identity import TRANSFORM_JOBS
from halimede.hosting.metering.store import Metric, MetricStores
from halimede.hosting.substrates.base import InstanceRequest
from halimede.hosting.substrates.use import InstanceUse

NAMESPACE = "/aws/sagemaker/TransformJobs"


def of_job(request: InstanceRequest) -> bool:
    """Whether an instance is a transform job's."""
    return request.endpoint == TRANSFORM_JOBS


def gauge_job(stores: MetricStores, request: InstanceRequest, use: InstanceUse, when: float) -> None:
    """Count what was measured of an instance of a job at a time, in seconds since 1970."""
    values = {
        "CPUUtilization": use.utilization.cpu,
        "MemoryUtilization": use.utilization.memory,
        "DiskUtilization": use.utilization.disk,
        "GPUUtilization": use.gpus.busy,
        "GPUMemoryUtilization": use.gpus.memory,
    }
    store = stores.of(request.endpoint_id.scope)
    for name, value in values.items():
        if value is not None:
            metric = Metric.of(NAMESPACE, name, {"Host": f"{request.variant}/{request.id}"})
            store.add(metric, value, "Percent", 1, when)
