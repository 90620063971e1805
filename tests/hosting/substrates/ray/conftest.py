"""One cluster for the tests of this directory: a head without processors, and nodes that tests add."""

from collections.abc import Iterator

import pytest

from tests.support.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RayCluster]:
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster; nodes that a test adds go with it."""
    before = set(shared_cluster.nodes)
    yield shared_cluster
    for name in shared_cluster.nodes.keys() - before:
        shared_cluster.remove(name)
