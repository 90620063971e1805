"""An endpoint that grows beyond the cluster's nodes gets more of them from Ray's autoscaler."""

from pathlib import Path

import pytest

from tests.hosting.substrates.ray.serving import hosted
from tests.support.autoscaling_cluster import autoscaling_cluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


def test_instances_beyond_the_nodes_get_nodes(tmp_path: Path) -> None:
    with autoscaling_cluster(tmp_path, 3) as cluster, hosted(tmp_path, cluster, "--oversubscription=1") as of:
        of.create()
        assert len(set(of.nodes_of().values())) == 1
        of.scale(3)
        assert of.settled() == "InService"
        assert len(set(of.nodes_of().values())) == 3
        assert len(of.pids()) == 3
