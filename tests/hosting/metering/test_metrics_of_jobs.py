"""What is measured of the instances of transform jobs."""

from halimede.hosting.identity import TRANSFORM_JOBS, Scope
from halimede.hosting.metering.jobs import gauge_job, of_job
from halimede.hosting.metering.store import Metric, MetricStores
from halimede.hosting.substrates.base import InstanceRequest, Resources
from halimede.hosting.substrates.use import GpuUse, InstanceUse, Utilization


def test_instances_are_told_apart_by_host() -> None:
    stores = MetricStores()
    scope = Scope()
    request = InstanceRequest(
        "i-1", *scope, TRANSFORM_JOBS, "job", "f-1", "image", {}, None, False, Resources(1, 1 << 30)
    )
    assert of_job(request)
    gauge_job(stores, request, InstanceUse(Utilization(150, 20, 30), GpuUse(None, None)), 600.0)
    store = stores.find(scope)
    host = {"Host": "job/i-1"}
    metric = Metric.of("/aws/sagemaker/TransformJobs", "CPUUtilization", host)
    [(_, values)] = store.periods(metric, 600, 660, 60)
    assert (values.count, values.total) == (1, 150)
    names = {found.name for found in store.metrics()}
    assert names == {"CPUUtilization", "MemoryUtilization", "DiskUtilization"}
