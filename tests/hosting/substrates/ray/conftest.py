"""One cluster for the tests of this directory, a head without processors and nodes that tests add; and a host on it."""

from collections.abc import Iterator

import pytest

from tests.hosting.substrates.ray.serving import Hosted, hosted
from tests.support.ray_cluster import RayCluster, ray_cluster

_CATALOGUE = """\
["ml.my.accelerated"]
cpus = 1
memory_gib = 1
resources = { accelerator = 1 }

["ml.my.gpu"]
cpus = 1
memory_gib = 1
gpus = 1
"""


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


@pytest.fixture(scope="session")
def shared_host(shared_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A host that outlives its tests."""
    directory = tmp_path_factory.mktemp("ray")
    catalogue = directory / "catalogue.toml"
    catalogue.write_text(_CATALOGUE)
    flags = ("--metric-period=1", "--describe-hold=50", f"--catalogue={catalogue}")
    with hosted(directory, shared_cluster, *flags) as found:
        yield found


@pytest.fixture
def of(shared_host: Hosted, cluster: RayCluster) -> Iterator[Hosted]:
    """The shared host, which has no endpoints."""
    yield shared_host
    shared_host.clear()
