"""What `halimede endpoints NAME --wait` shows of an endpoint on a cluster."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hosting.substrates.ray.serving import VARIANT, Hosted, unique
from tests.support.ray_cluster import RayCluster

MB = 1_000_000


@contextmanager
def waiting(of: Hosted, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that waits for an endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "halimede", "endpoints", name, "--wait"],
        env={**of.host.environment, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    with process:
        yield process


def test_waiting_shows_why_there_is_no_room_and_how_far_the_model_is_fetched(
    of: Hosted, cluster: RayCluster
) -> None:
    name = unique("waits")
    of.create(name, wait=False, ModelDataUrl=of.put_archive(size=5 * MB))
    with waiting(of, name) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{name}: Creating …\n"
        line = process.stderr.readline()
        assert line.startswith(f"{name}: {VARIANT} waits: InsufficientInstanceCapacity: "), line
        cluster.add("one")
        table, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"| {name} | InService |" in table
    url = "s3://models/model.tar.gz"
    assert f"fetching {url}\n" in told
    found = re.search(rf"fetched (\S+) of (\S+) MB of {url}\n", told)
    assert found is not None, told
    assert (found[1], found[2]) == ("5.0", "5.0")


def test_answers_are_not_held_while_an_endpoint_waits_for_room(of: Hosted, cluster: RayCluster) -> None:
    of.create(wait=False)
    [variant] = of.describe()["PendingDeploymentSummary"]["ProductionVariants"]
    assert variant["VariantStatus"][0]["StatusMessage"].startswith("InsufficientInstanceCapacity: ")
    cluster.add("one")
    assert of.settled() == "InService"
