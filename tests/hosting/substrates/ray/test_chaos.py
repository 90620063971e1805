"""Nodes, engines and hosts are killed at any moment of an endpoint's life; in the end there is what is wanted, once."""

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import descendants, marked
from tests.hosting.substrates.ray.serving import Hosted, hosted, until
from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.timeout(400)  # clusters start in seconds, and several at a time in many


SEEDS = range(int(os.environ.get("HALIMEDE_CHAOS_SEEDS", "1")))


def _settle(of: Hosted, count: int) -> None:
    """Return once the endpoint serves with so many instances, and there are no others."""

    def is_settled() -> bool:
        found = of.describe()
        return (
            found["EndpointStatus"] == "InService"
            and found["ProductionVariants"][0]["CurrentInstanceCount"] == count
            and len(of.nodes_of()) == count
            and len({of.pid() for _ in range(10 * count)}) == count
        )

    until(is_settled)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_are_killed_at_any_moment(of: Hosted, cluster: RayCluster, seed: int) -> None:
    draw = random.Random(seed)
    cluster.add("kept")
    of.configure("e", 2)
    of.configure("f", 2)

    def kill_later(name: str, delay: float) -> threading.Timer:
        timer = threading.Timer(delay, cluster.kill, [name])
        timer.start()
        return timer

    cluster.add("first")
    timer = kill_later("first", draw.uniform(0, 2))
    of.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="e")
    timer.join()
    _settle(of, 2)

    cluster.add("second")
    timer = kill_later("second", draw.uniform(0, 1.5))
    of.scale(4)
    timer.join()
    of.settled()
    if of.describe()["ProductionVariants"][0]["DesiredInstanceCount"] != 4:
        of.scale(4)
    _settle(of, 4)

    cluster.add("third")
    timer = kill_later("third", draw.uniform(0, 1.5))
    of.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="f")
    timer.join()
    of.settled()
    _settle(of, of.describe()["ProductionVariants"][0]["DesiredInstanceCount"])

    cluster.add("fourth")
    of.scale(3)
    of.settled()
    timer = kill_later("fourth", draw.uniform(0, 0.5))
    of.delete()
    timer.join()
    until(lambda: not of.nodes_of())


@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_and_engines_are_killed_at_any_moment(tmp_path: Path, cluster: RayCluster, seed: int) -> None:
    draw = random.Random(seed)
    cluster.add("one")
    cluster.add("two")
    with ExitStack() as hosts:
        of = hosts.enter_context(hosted(tmp_path, cluster))
        of.configure("e", 2)
        of.configure("f", 3)
        steps: Sequence[Callable[[], object]] = [
            lambda: of.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="e"),
            lambda: of.scale(4),
            lambda: of.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="f"),
            lambda: of.scale(1),
        ]
        for count, step in zip((2, 4, 3, 1), steps, strict=True):
            for victim in ("engine", "host"):
                with suppress(ClientError):  # it has been done, or is being done, already
                    step()
                threading.Event().wait(draw.uniform(0, 1.5))
                if victim == "engine":
                    _kill_engine(of)
                else:
                    of.host.stop(signal.SIGKILL)
                    of = hosts.enter_context(hosted(tmp_path, cluster))
            of.settled()
            _settle(of, count)
        of.delete()
        until(lambda: not marked(tmp_path / "nodes"))


def _kill_engine(of: Hosted) -> None:
    for pid in descendants(of.host.process.pid):
        try:
            if b"substrates.ray.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            pass
