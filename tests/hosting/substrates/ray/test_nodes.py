"""On which nodes endpoints get their instances, and how they wait for nodes that have room."""

from pathlib import Path

import pytest

from tests.hosting.substrates.ray.serving import hosted, until
from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


def test_packed_instances_fill_one_node_first(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    cluster.add("two")
    with hosted(tmp_path, cluster, "--placement=pack") as of:
        of.create(count=3)
        assert len(set(of.nodes_of().values())) == 1


class TestRoom:
    def test_an_endpoint_waits_for_room_and_comes_up_when_a_node_joins(
        self, tmp_path: Path, cluster: RayCluster
    ) -> None:
        with hosted(tmp_path, cluster) as of:
            of.create(wait=False)

            def waits() -> str:
                summary = of.describe().get("PendingDeploymentSummary", {})
                statuses = [each.get("VariantStatus", []) for each in summary.get("ProductionVariants", ())]
                return "".join(status["StatusMessage"] for each in statuses for status in each)

            until(waits, "what it waits for")
            assert waits().startswith("InsufficientInstanceCapacity: ")
            until(lambda: cluster.requested() == [{"CPU": 0.125}], "a request to Ray's autoscaler")
            assert "CPU" in waits()
            assert of.describe()["EndpointStatus"] == "Creating"
            cluster.add("one")
            assert of.settled() == "InService"
            assert "VariantStatus" not in of.describe()["ProductionVariants"][0]
            until(lambda: not cluster.requested(), "the end of the request")

    def test_an_endpoint_fails_once_it_has_waited_long_enough(
        self, tmp_path: Path, cluster: RayCluster
    ) -> None:
        with hosted(tmp_path, cluster, "--capacity-wait=1") as of:
            of.create(wait=False)
            assert of.settled() == "Failed"
            assert "Add nodes" in of.describe()["FailureReason"]

    def test_an_endpoint_that_waits_can_be_deleted(self, tmp_path: Path, cluster: RayCluster) -> None:
        with hosted(tmp_path, cluster) as of:
            of.create(wait=False)
            until(lambda: "waits: " in of.host.log, "an endpoint that waits")
            of.delete()
            cluster.add("one")
            of.create("other")
            assert len(of.nodes_of()) == 1


def test_an_instance_asks_for_what_its_type_says(tmp_path: Path, cluster: RayCluster) -> None:
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(
        '["ml.my.accelerated"]\ncpus = 1\nmemory_gib = 1\nresources = { accelerator = 1 }\n'
        '["ml.my.gpu"]\ncpus = 1\nmemory_gib = 1\ngpus = 1\n'
    )
    cluster.add("plain", num_cpus=4)
    accelerated = cluster.add("accelerated", resources={"accelerator": 1})
    one_gpu = cluster.add("gpu", num_gpus=1)
    with hosted(tmp_path, cluster, f"--catalogue={catalogue}") as of:
        of.configure("a", instance_type="ml.my.accelerated")
        of.configure("g", instance_type="ml.my.gpu")
        of.configure("h", instance_type="ml.my.gpu")
        for name in ("a", "g"):
            of.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
            assert of.settled(name) == "InService"
        assert sorted(of.nodes_of().values()) == sorted([accelerated, one_gpu])
        assert of.ask(name="g")["gpus"] == "0"
        assert of.ask(name="a")["gpus"] == ""
        of.sagemaker.create_endpoint(EndpointName="h", EndpointConfigName="h")
        until(lambda: "has 0 GPU free" in of.host.log or "0 GPU" in of.host.log, "an endpoint that waits")
        of.delete("g")
        assert of.settled("h") == "InService"


def test_router_processes_reach_instances_on_nodes(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster, "--router-processes=2") as of:
        of.create(count=2)
        assert len(of.pids()) == 2
        of.scale(1)
        assert of.settled() == "InService"
        assert len(of.pids()) == 1
