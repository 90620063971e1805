"""What instances count of their containers becomes metrics with the name of the container."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from halimede.hosting.metering.container_metrics import ContainerMetrics, Counts
from halimede.hosting.metering.store import Metric, MetricStores
from halimede.hosting.substrates.base import ContainerRequest, RunningInstance
from halimede.http1.client import RefusedError
from tests.hosting.control.fakes import on_loop
from tests.hosting.substrates.instances import request_for

NOON = 43_200.0


def running(number: int, *names: str) -> RunningInstance:
    """An instance of containers of those names."""
    containers = tuple(ContainerRequest(name, "image", {}) for name in names)
    return RunningInstance(
        replace(request_for("image", number=number), containers=containers), "127.0.0.1", 1
    )


def counts(invocations: int, ended: int, client: int, server: int, *latencies_us: int) -> Counts:
    return {
        "invocations": invocations,
        "ended": ended,
        "client_errors": client,
        "server_errors": server,
        "latencies_ns": [each * 1000 for each in latencies_us],
    }


@on_loop
async def test_counts_of_instances_become_metrics(tmp_path: Path) -> None:
    said = {
        "i-0": {"a": counts(4, 4, 1, 1, 10, 20, 30), "b": counts(0, 0, 0, 0)},
        "i-1": {"a": counts(1, 1, 0, 0, 40)},
    }
    asked = []

    async def ask(instance: RunningInstance) -> Mapping[str, Counts]:
        asked.append(instance.request.id)
        if instance.request.id == "i-2":
            raise RefusedError("nobody listens")
        return said[instance.request.id]

    instances = [running(0, "a", "b"), running(1, "a", "b"), running(2, "a", "b"), running(3)]
    stores = MetricStores()
    metrics = ContainerMetrics(lambda: instances, stores, lambda: NOON, ask)
    await metrics.collect()
    assert asked == ["i-0", "i-1", "i-2"]  # the last one has only one container

    store = stores.of(instances[0].request.endpoint_id.scope)

    def values(name: str, container: str = "a") -> Any:
        dimensions = {"EndpointName": "e", "VariantName": "A", "ContainerName": container}
        [(_, found)] = store.periods(Metric.of("AWS/SageMaker", name, dimensions), NOON, NOON + 60, 60)
        return found.total, found.count

    assert values("Invocations") == (5, 5)
    assert values("Invocation4XXErrors") == (1, 5)
    assert values("Invocation5XXErrors") == (1, 5)
    assert values("ContainerLatency") == (100, 4)
    assert {dict(each.dimensions)["ContainerName"] for each in store.metrics()} == {"a"}


@on_loop
async def test_an_instance_that_does_not_listen_is_asked_again(tmp_path: Path) -> None:
    stores = MetricStores()
    metrics = ContainerMetrics(lambda: [running(0, "a", "b")], stores, lambda: NOON)
    await metrics.collect()  # nobody listens at port 1
    assert not stores.of(running(0, "a").request.endpoint_id.scope).metrics()
