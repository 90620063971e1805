"""Endpoints whose instances are on the nodes of a Ray cluster."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import marked
from tests.hosting.substrates.ray.serving import VARIANT, hosted, until
from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


def test_instances_serve_from_different_nodes_and_leave_nothing(tmp_path: Path, cluster: RayCluster) -> None:
    nodes = {cluster.add("one"), cluster.add("two")}
    with hosted(tmp_path, cluster) as of:
        of.create(count=2)
        assert len(of.pids()) == 2
        assert set(of.nodes_of().values()) == nodes
        assert of.ask()["niceness"] == 0
        of.delete()
        until(lambda: not marked(of.nodes))


def test_packed_instances_fill_one_node_first(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    cluster.add("two")
    with hosted(tmp_path, cluster, "--placement=pack") as of:
        of.create(count=3)
        assert len(set(of.nodes_of().values())) == 1


def test_what_instances_print_is_read_here(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster) as of:
        of.create()
        of.ask("print something to read")
        logs = of.host.client("logs")
        group = "/aws/sagemaker/Endpoints/e"
        until(lambda: bool(logs.describe_log_groups()["logGroups"]))  # which have to come from the node first
        [stream] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{VARIANT}/i-")[
            "logStreams"
        ]

        def lines() -> list[str]:
            events = logs.get_log_events(
                logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
            )
            return [event["message"] for event in events["events"]]

        until(lambda: lines() == ["serving ['serve']", "something to read"])
        with pytest.raises(ClientError, match="No response from container"):
            of.ask("exit")
        until(lambda: lines()[-1:] == ["told to exit"])
        until(of.serves)  # another instance has taken its place


def test_a_node_fetches_an_archive_once_for_its_instances(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster) as of:
        of.create(count=2, ModelDataUrl=of.put_archive(size=5_000_000))
        assert of.ask()["names"] == ["weights.bin"]
        assert len(list(of.nodes.glob("*/*/store/model-*"))) == 1


def test_a_missing_archive_fails_the_endpoint_with_the_reason(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster) as of:
        of.put_archive()
        of.create(wait=False, ModelDataUrl="s3://models/other.tar.gz")
        assert of.settled() == "Failed"
        assert "there is no such object" in of.describe()["FailureReason"]


def test_a_program_that_ends_fails_the_endpoint_with_what_it_printed(
    tmp_path: Path, cluster: RayCluster
) -> None:
    cluster.add("one")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no licence; exit 4\n")
    broken.chmod(0o755)
    with hosted(tmp_path, cluster) as of:
        of.create(wait=False, Image=str(broken))
        assert of.settled() == "Failed"
        reason = of.describe()["FailureReason"]
        assert "it ended with status 4; its last lines: no licence" in reason
        of.create("missing", wait=False, Image=str(tmp_path / "missing"))
        assert of.settled("missing") == "Failed"
        assert "names a program that cannot be run" in of.describe("missing")["FailureReason"]


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

            until(lambda: bool(waits()))
            assert waits().startswith("InsufficientInstanceCapacity: ")
            until(lambda: cluster.requested() == [{"CPU": 0.125}])  # of Ray's autoscaler
            assert "CPU" in waits()
            assert of.describe()["EndpointStatus"] == "Creating"
            cluster.add("one")
            assert of.settled() == "InService"
            assert "VariantStatus" not in of.describe()["ProductionVariants"][0]
            until(lambda: not cluster.requested())

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
            until(lambda: "waits: " in of.host.log)
            of.delete()
            cluster.add("one")
            of.create("other")
            assert len(of.nodes_of()) == 1


def test_what_instances_use_is_measured_on_their_nodes(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster, "--metric-period=1") as of:
        of.create()
        cloudwatch = of.host.client("cloudwatch")

        def names() -> set[str]:
            found = cloudwatch.list_metrics(Namespace="/aws/sagemaker/Endpoints")["Metrics"]
            return {metric["MetricName"] for metric in found}

        until(lambda: {"CPUUtilization", "MemoryUtilization", "DiskUtilization"} <= names())
        assert not any(name.startswith("GPU") for name in names())


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
        until(lambda: "has 0 GPU free" in of.host.log or "0 GPU" in of.host.log)
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


def test_containers_in_a_row_serve_from_a_node(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    with hosted(tmp_path, cluster) as of:
        url = of.put_archive()
        image = str(of.program)
        of.create("row", Containers=[{"Image": image}, {"Image": image, "ModelDataUrl": url}])
        assert of.ask("x", "row")["names"] == ["weights.bin"]  # as the last of them sees
        logs = of.host.client("logs")

        def printed() -> set[tuple[str, str]]:
            events = logs.filter_log_events(
                logGroupName="/aws/sagemaker/Endpoints/row", logStreamNamePrefix=f"{VARIANT}/i-"
            )["events"]
            return {(event["logStreamName"].rpartition("/")[2], event["message"]) for event in events}

        until(lambda: bool(logs.describe_log_groups()["logGroups"]))  # which come from the node
        until(
            lambda: printed() == {("container-1", "serving ['serve']"), ("container-2", "serving ['serve']")}
        )
        with pytest.raises(ClientError, match="No response from container container-1"):
            of.ask("exit", "row")
        until(lambda: of.serves("row"))  # another instance has taken its place
        of.delete("row")
        until(lambda: not marked(of.nodes))
