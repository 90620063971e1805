"""What becomes of endpoints when a part of the cluster, or of the host, is killed."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import descendants, marked
from tests.hosting.substrates.ray.serving import Hosted, hosted, until
from tests.support.ray_cluster import RayCluster, light_nodes, ray_cluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


class Load:
    """Clients that ask an endpoint again and again.

    Attributes:
        answers: instance's process → how many answers it gave.
        failures: the texts of errors.
    """

    def __init__(self, of: Hosted) -> None:
        self.answers: Counter[int] = Counter()
        self.failures: list[str] = []
        self._of = of
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                self.answers[self._of.ask()["pid"]] += 1
            except ClientError as error:
                self.failures.append(str(error))
            self._stop.wait(0.03)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def goes_on(self) -> None:
        """Return once a hundred more requests have been answered."""
        enough = self.answers.total() + 100
        until(lambda: self.answers.total() >= enough)


def test_instances_of_a_killed_node_come_back_elsewhere(of: Hosted, cluster: RayCluster) -> None:
    for name in ("one", "two"):
        cluster.add(name)
    of.create(count=4)
    before = of.nodes_of()
    pids = of.pids(asks=40)
    assert len(pids) == 4
    with Load(of).running() as load:
        load.goes_on()
        cluster.kill("two")
        until(lambda: len(set(of.nodes_of()) - set(before)) == 2 and len(of.nodes_of()) == 4)
        until(lambda: len(load.answers.keys() - pids) == 2)
        load.goes_on()
    gone = [instance for instance, node in before.items() if node not in cluster.nodes.values()]
    assert len(gone) == 2
    assert not set(gone) & of.nodes_of().keys()
    # those under way on the node, and those whose connection it had not closed yet: they were sent
    assert len(load.failures) <= 4 * len(gone), load.failures
    assert all("No response from container" in each for each in load.failures), load.failures
    assert of.describe()["EndpointStatus"] == "InService"


def test_instances_of_a_node_that_stands_still_come_back_elsewhere(
    tmp_path: Path, cluster: RayCluster
) -> None:
    cluster.add("one")
    cluster.add("two")
    with hosted(tmp_path, cluster, "--invocation-timeout=2") as of:
        of.create(count=2)
        before = of.nodes_of()
        pids = of.pids()
        with cluster.frozen("two"):
            until(lambda: len({of.pid() for _ in range(20)} - pids - {0}) == 1)
            assert len(set(of.nodes_of()) - set(before)) == 1
        until(lambda: len(of.nodes_of()) == 2)  # the others end as soon as they can
        cluster.kill("two")


def test_a_killed_host_finds_its_instances_and_no_request_fails(tmp_path: Path, cluster: RayCluster) -> None:
    cluster.add("one")
    cluster.add("two")
    with hosted(tmp_path, cluster) as of:
        of.create(count=2)
        pids, instances = of.pids(), of.nodes_of()
        of.host.stop(signal.SIGKILL)
        with hosted(tmp_path, cluster) as again:
            until(lambda: again.describe()["EndpointStatus"] == "InService")
            with Load(again).running() as load:
                load.goes_on()
            assert not load.failures
            assert set(load.answers) == pids
            assert again.nodes_of() == instances
            again.ask("print after the restart")
            log = next((again.directory / "logs").glob("*/*/e/A/*.log"))
            every = sorted((again.directory / "logs").glob("*/*/e/A/i-*.log"))
            until(lambda: any(each.read_text().endswith("after the restart\n") for each in every))
            assert log.exists()
            again.delete()


def test_requests_go_on_while_the_engine_is_killed_and_comes_back(of: Hosted, cluster: RayCluster) -> None:
    cluster.add("one")
    cluster.add("two")
    of.create(count=2)
    before = of.nodes_of()
    with Load(of).running() as load:
        load.goes_on()
        _kill_engine(of)
        of.scale(3)  # which waits for the next engine
        assert of.settled() == "InService"
        load.goes_on()
    assert not load.failures
    assert before.items() <= of.nodes_of().items()
    assert len(of.nodes_of()) == 3
    _kill_engine(of)
    of.delete()
    until(lambda: not marked(of.nodes))


def _kill_engine(of: Hosted) -> None:
    [engine] = [pid for pid in descendants(of.host.process.pid) if b"substrates.ray.engine" in _command(pid)]

    os.kill(engine, signal.SIGKILL)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_host_with_a_cluster_of_its_own_starts_another_when_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in light_nodes().items():
        monkeypatch.setenv(name, value)
    with hosted(tmp_path, None) as of:
        of.create()
        [head] = [pid for pid in descendants(of.host.process.pid) if b"start\0--head" in _command(pid)]
        of.host.stop(signal.SIGKILL)
        with hosted(tmp_path, None) as again:
            assert _command(head)  # it was found again
            [pid] = again.pids(asks=3)
            for each in descendants(head):
                if b"gcs_server" in _command(each):
                    os.kill(each, signal.SIGKILL)
            until(lambda: again.pid() not in (0, pid))
            assert again.describe()["EndpointStatus"] == "InService"
            again.delete()
        until(lambda: not _command(head))


def test_a_host_outlives_the_head_of_a_cluster_of_others(tmp_path: Path) -> None:
    with ray_cluster(head_cpus=1) as cluster, hosted(tmp_path, cluster) as of:
        of.create()
        pid = of.pid()
        cluster.kill_head()
        until(lambda: "connection to the Ray cluster" in of.host.log)
        # the node ends itself, and the instance with it; the host waits for a cluster
        until(lambda: of.pid() != pid)
        assert of.describe()["EndpointStatus"] == "InService"
        of.sagemaker.delete_endpoint(EndpointName="e")
        of.host.stop(signal.SIGKILL)
