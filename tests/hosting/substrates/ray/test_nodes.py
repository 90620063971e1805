"""On which nodes endpoints get their instances, and how they wait for nodes that have room."""

from collections.abc import Iterator

import pytest

from tests.hosting.substrates.ray.serving import Hosted, hosted, until
from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


@pytest.fixture(scope="module")
def shared_packing(shared_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A host that fills one node after the other, does not wait for others, and has processes of routers."""
    flags = ("--placement=pack", "--capacity-wait=1", "--router-processes=2")
    with hosted(tmp_path_factory.mktemp("packing"), shared_cluster, *flags) as found:
        yield found


@pytest.fixture
def packing(shared_packing: Hosted, cluster: RayCluster) -> Iterator[Hosted]:
    """The same, without endpoints."""
    yield shared_packing
    shared_packing.clear()


def test_packed_instances_fill_one_node_first(packing: Hosted, cluster: RayCluster) -> None:
    cluster.add("one")
    cluster.add("two")
    packing.create(count=2)
    assert len(set(packing.nodes_of().values())) == 1


class TestRoom:
    def test_an_endpoint_waits_for_room_and_comes_up_when_a_node_joins(
        self, of: Hosted, cluster: RayCluster
    ) -> None:
        of.create(wait=False)
        until(of.waits, "what it waits for")
        assert of.waits().startswith("InsufficientInstanceCapacity: ")
        until(lambda: cluster.requested() == [{"CPU": 0.125}], "a request to Ray's autoscaler")
        assert "CPU" in of.waits()
        assert of.describe()["EndpointStatus"] == "Creating"
        cluster.add("one")
        assert of.settled() == "InService"
        assert "VariantStatus" not in of.describe()["ProductionVariants"][0]
        until(lambda: not cluster.requested(), "the end of the request")

    def test_an_endpoint_fails_once_it_has_waited_long_enough(self, packing: Hosted) -> None:
        packing.create(wait=False)
        assert packing.settled() == "Failed"
        assert "Add nodes" in packing.describe()["FailureReason"]

    def test_an_endpoint_that_waits_can_be_deleted(self, of: Hosted, cluster: RayCluster) -> None:
        of.create(wait=False)
        until(of.waits, "an endpoint that waits")
        of.delete()
        cluster.add("one")
        of.create("other")
        assert len(of.nodes_of()) == 1


def test_an_instance_asks_for_what_its_type_says(of: Hosted, cluster: RayCluster) -> None:
    cluster.add("plain", num_cpus=4)
    accelerated = cluster.add("accelerated", resources={"accelerator": 1})
    one_gpu = cluster.add("gpu", num_gpus=1)
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
    until(lambda: "0 GPU" in of.waits("h"), "an endpoint that waits")
    of.delete("g")
    assert of.settled("h") == "InService"


def test_router_processes_reach_instances_on_nodes(packing: Hosted, cluster: RayCluster) -> None:
    cluster.add("one")
    packing.create(count=2)
    assert len(packing.pids()) == 2
    packing.scale(1)
    assert packing.settled() == "InService"
    assert len(packing.pids()) == 1
