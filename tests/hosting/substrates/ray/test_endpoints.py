"""Endpoints whose instances are on the nodes of a Ray cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import marked
from tests.hosting.substrates.ray.serving import VARIANT, Hosted, unique, until
from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


@pytest.fixture(scope="module", autouse=True)
def nodes(shared_cluster: RayCluster) -> Iterator[None]:
    """Two nodes, which tests share."""
    for name in ("one", "two"):
        shared_cluster.add(name)
    yield
    for name in ("one", "two"):
        shared_cluster.remove(name)


def groups(of: Hosted) -> list[str]:
    """The names of log groups."""
    return [each["logGroupName"] for each in of.host.client("logs").describe_log_groups()["logGroups"]]


def test_instances_serve_from_different_nodes_and_leave_nothing(of: Hosted) -> None:
    of.create(count=2)
    assert len(of.pids()) == 2
    assert len(set(of.nodes_of().values())) == 2
    assert of.ask()["niceness"] == 0
    of.delete()
    until(lambda: not marked(of.nodes), "the end of all processes")


def test_what_instances_print_is_read_here(of: Hosted) -> None:
    name = unique("prints")
    of.create(name)
    of.ask("print something to read", name)
    logs = of.host.client("logs")
    group = f"/aws/sagemaker/Endpoints/{name}"
    until(lambda: group in groups(of), "the logs, which have to come from the node first")
    [stream] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{VARIANT}/i-")[
        "logStreams"
    ]

    def lines() -> list[str]:
        events = logs.get_log_events(
            logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
        )
        return [event["message"] for event in events["events"]]

    until(lambda: lines() == ["serving ['serve']", "something to read"], "both lines")
    with pytest.raises(ClientError, match="No response from container"):
        of.ask("exit", name)
    until(lambda: lines()[-1:] == ["told to exit"], "the last line")
    until(lambda: of.serves(name), "another instance in its place")


def test_a_node_fetches_an_archive_once_for_its_instances(of: Hosted) -> None:
    before = set(of.nodes.glob("*/*/store/model-*"))
    of.create(count=3, ModelDataUrl=of.put_archive(size=5_000_000))
    assert of.ask()["names"] == ["weights.bin"]
    fetched = set(of.nodes.glob("*/*/store/model-*")) - before
    assert len(fetched) == len({each.parent for each in fetched}) == 2


def test_a_missing_archive_fails_the_endpoint_with_the_reason(of: Hosted) -> None:
    of.put_archive()
    of.create(wait=False, ModelDataUrl="s3://models/other.tar.gz")
    assert of.settled() == "Failed"
    assert "there is no such object" in of.describe()["FailureReason"]


def test_a_program_that_ends_fails_the_endpoint_with_what_it_printed(of: Hosted, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no licence; exit 4\n")
    broken.chmod(0o755)
    of.create(wait=False, Image=str(broken))
    assert of.settled() == "Failed"
    reason = of.describe()["FailureReason"]
    assert "it ended with status 4; its last lines: no licence" in reason
    of.create("missing", wait=False, Image=str(tmp_path / "missing"))
    assert of.settled("missing") == "Failed"
    assert "names a program that cannot be run" in of.describe("missing")["FailureReason"]


def test_what_instances_use_is_measured_on_their_nodes(of: Hosted) -> None:
    name = unique("measured")
    of.create(name)
    cloudwatch = of.host.client("cloudwatch")
    dimensions = [{"Name": "EndpointName", "Value": name}]

    def names() -> set[str]:
        found = cloudwatch.list_metrics(Namespace="/aws/sagemaker/Endpoints", Dimensions=dimensions)[
            "Metrics"
        ]
        return {metric["MetricName"] for metric in found}

    until(lambda: {"CPUUtilization", "MemoryUtilization", "DiskUtilization"} <= names(), "metrics")
    assert not any(name.startswith("GPU") for name in names())


def test_containers_in_a_row_serve_from_a_node(of: Hosted) -> None:
    url = of.put_archive()
    image = str(of.program)
    name = unique("row")
    of.create(name, Containers=[{"Image": image}, {"Image": image, "ModelDataUrl": url}])
    assert of.ask("x", name)["names"] == ["weights.bin"]  # as the last of them sees
    logs = of.host.client("logs")
    group = f"/aws/sagemaker/Endpoints/{name}"

    def printed() -> set[tuple[str, str]]:
        events = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=f"{VARIANT}/i-")["events"]
        return {(event["logStreamName"].rpartition("/")[2], event["message"]) for event in events}

    until(lambda: group in groups(of), "the logs, which come from the node")
    until(lambda: printed() == {("container-1", "serving ['serve']"), ("container-2", "serving ['serve']")})
    with pytest.raises(ClientError, match="No response from container container-1"):
        of.ask("exit", name)
    until(lambda: of.serves(name), "another instance in its place")
    of.delete(name)
    until(lambda: not marked(of.nodes), "the end of all processes")
