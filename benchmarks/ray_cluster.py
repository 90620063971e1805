"""The host on a Ray cluster of this machine, beside the same host with processes of its own."""

import importlib.util
import itertools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.clusters import (
    SERVER,
    TINY,
    Hosted,
    await_warm,
    cluster_of,
    command,
    hosting,
    program,
    reports,
    unique_memory_mb,
    until,
)
from benchmarks.connections import Call, connected, exchange, median_time
from benchmarks.errors import BenchmarkError
from benchmarks.hosting import load, pack, request_of
from benchmarks.processes import resident_mb
from benchmarks.watched_host import steps
from benchmarks.workload import Compare, Sample, Sides, Workload
from halimede.core.process_tree import tree
from tests.support.ray_cluster import RayCluster

CREATE_GOAL_S = 1.5
LOST_GOAL_S = 5
STEP_GOAL_MS = 100
MEMORY_GOAL_MB = 200
IDLE_GOAL_PERCENT = 2
MANY = 50
CONCURRENCY = 32

_CLIENTS = 8
_IDLE_S = 30.0
_SETTLE_S = 5.0
_TOOL = "h2load"


def workloads() -> list[Workload]:
    """What a cluster adds to the life of an endpoint and to an invocation, and what the host takes of the machine."""
    ray = "" if importlib.util.find_spec("ray") else "ray"
    tool = ray or ("" if shutil.which(_TOOL) else _TOOL)

    def limit(name: str, unit: str, goal: float, value: Callable[[], Sample]) -> Workload:
        return Workload(
            name, unit, Compare.AT_MOST, 1.0, partial(beside, value, goal), once=True, missing=ray
        )

    return [
        Workload("ray-create", "s", Compare.AT_MOST_MORE, CREATE_GOAL_S, creation, missing=ray),
        Workload("ray-invoke-c1", "µs, median", Compare.AT_MOST, 1.05, one_at_a_time, missing=ray),
        Workload(
            f"ray-invoke-c{CONCURRENCY}", "requests/s", Compare.AT_LEAST, 0.95, many_at_a_time, missing=tool
        ),
        Workload("ray-node-lost", "s", Compare.AT_MOST_MORE, LOST_GOAL_S, node_lost, missing=ray),
        Workload("ray-node-lost-failures", "requests", Compare.AT_MOST_MORE, 0, failures, missing=ray),
        limit("ray-50-create", "ms, longest step", STEP_GOAL_MS, lambda: longest_steps()["create"]),
        limit("ray-50-update", "ms, longest step", STEP_GOAL_MS, lambda: longest_steps()["update"]),
        limit("ray-50-delete", "ms, longest step", STEP_GOAL_MS, lambda: longest_steps()["delete"]),
        limit("ray-50-memory", "MB", MEMORY_GOAL_MB, lambda: Sample(footprint().host_mb)),
        limit("ray-50-idle", "% of a core", IDLE_GOAL_PERCENT, lambda: Sample(footprint().idle_percent)),
        Workload(
            "ray-instance-memory", "MB", Compare.AT_MOST_MORE, None, instance_memory, once=True, missing=ray
        ),
    ]


@contextmanager
def beside(value: Callable[[], Sample], goal: float, _seconds: float) -> Iterator[Sides]:
    """What was measured, beside its goal."""
    yield Sides(value, lambda: Sample(goal))


# one instance


@contextmanager
def creation(_seconds: float) -> Iterator[Sides]:
    """An endpoint of one small model until it is in service; Ray's workers wait for it, as they do on a node in use."""
    with both() as (ray, local, cluster, bucket):
        names = (f"e{number}" for number in itertools.count())
        for of in (ray, local):
            of.configure(
                "small", Image="sagemaker-tritonserver", ModelDataUrl=f"s3://{bucket.name}/model.tar.gz"
            )

        def create(of: Hosted) -> Sample:
            name = next(names)
            took = of.create(name, "small")
            of.delete(name)
            return Sample(took)

        def ours() -> Sample:
            for name in cluster.nodes.keys() - {"head"}:  # their workers have been used
                cluster.remove(name)
            cluster.add(next(names), num_cpus=2)
            await_warm(cluster)
            return create(ray)

        yield Sides(ours, lambda: create(local))


@contextmanager
def one_at_a_time(seconds: float) -> Iterator[Sides]:
    """A small request through the host to another node; beside it, to a process of the host's own, over TCP too."""
    with invoking() as (ray, through, local, near):
        yield Sides(
            lambda: median_time(ray.server, through, seconds),
            lambda: median_time(local.server, near, seconds),
        )


@contextmanager
def many_at_a_time(seconds: float) -> Iterator[Sides]:
    """The same, so many at a time."""
    with invoking() as (ray, through, local, near):
        yield Sides(
            lambda: load(ray.server, through, CONCURRENCY, seconds),
            lambda: load(local.server, near, CONCURRENCY, seconds),
        )


@contextmanager
def invoking() -> Iterator[tuple[Hosted, Call, Hosted, Call]]:
    """Two hosts with an endpoint each, and the same request to both."""
    header, tensor = request_of(16)
    headers = {"Content-Type": f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(header)}"}
    with both() as (ray, local, _, bucket):
        calls = []
        for of in (ray, local):
            of.configure(
                "one", Image=program(bucket, SERVER), ModelDataUrl=f"s3://{bucket.name}/model.tar.gz"
            )
            of.create("one", "one")
            calls.append(Call(of.server.http_port, "/endpoints/one/invocations", headers, header + tensor))
        yield ray, calls[0], local, calls[1]


@contextmanager
def both() -> Iterator[tuple[Hosted, Hosted, RayCluster, Path]]:
    """A host on a cluster with one node beside the host's, a local one, and a bucket."""
    with tempfile.TemporaryDirectory() as work, cluster_of({"other": 2}, warm=True) as cluster:
        bucket = Path(work) / "bucket"
        bucket.mkdir()
        pack(models.large_identity(), bucket / "model.tar.gz")
        flag = f"--bucket={bucket.name}={bucket}"
        with (
            hosting(Path(work) / "ray", flag, cluster=cluster) as ray,
            hosting(Path(work) / "local", flag) as local,
        ):
            yield ray, local, cluster, bucket


# a node is lost


@dataclass(slots=True)
class Loss:
    """What came of the loss of a node.

    Attributes:
        reported_s: from its end until Ray said so.
        back_s: until all instances served again.
        answered: requests that were answered meanwhile.
        failed: requests that failed.
        unexplained: those of them that had not been sent to an instance of the node.
    """

    reported_s: float
    back_s: float
    answered: int
    failed: int
    unexplained: int


@contextmanager
def node_lost(_seconds: float) -> Iterator[Sides]:
    """From the kill of one node of three until all six instances serve; beside it, until Ray says that it is dead."""
    losses: list[Loss] = []
    with losing() as lose:

        def ours() -> Sample:
            losses.append(lose())
            return Sample(losses[-1].back_s)

        yield Sides(ours, lambda: Sample(losses[-1].reported_s))


@contextmanager
def failures(_seconds: float) -> Iterator[Sides]:
    """Failed requests that had not been sent to an instance of the node; beside them, none."""
    with losing() as lose:
        yield Sides(lambda: Sample(lose().unexplained), lambda: Sample(0))


@contextmanager
def losing() -> Iterator[Callable[[], Loss]]:
    """What has a node of three killed again and again, with an endpoint of six instances under load."""
    with tempfile.TemporaryDirectory() as work, cluster_of({"a": 4, "b": 4, "c": 4}) as cluster:
        seen = Path(work) / "seen"
        seen.mkdir()
        with hosting(Path(work) / "ray", cluster=cluster) as of:
            of.configure("six", 6, Image=program(Path(work), TINY), Environment={"SEEN": str(seen)})

            def lose() -> Loss:
                of.create("six", "six")
                loss = _lose(of, cluster, seen)
                of.delete("six")
                for name in {"a", "b", "c"} - cluster.nodes.keys():
                    cluster.add(name, num_cpus=4)
                return loss

            yield lose


def _lose(of: Hosted, cluster: RayCluster, seen: Path) -> Loss:
    lost = cluster.nodes["a"]
    before = of.processes()
    if len(before) != 3 or any(len(set(each.values())) != 2 for each in before.values()):
        raise BenchmarkError(f"Six instances are not on three nodes: {before}")
    with reports(cluster) as reported, Load(of.server.http_port, "six") as load_:
        until(lambda: load_.answered > 200, "answers")
        began = time.time()
        cluster.kill("a")
        reported_s = reported(lost) - began
        until(lambda: _is_back(of, before, lost), "the instances to be back")
        back_s = time.time() - began
        enough = load_.answered + 200
        until(lambda: load_.answered > enough, "answers")
    there = {pid for node, each in before.items() if node == lost for pid in each}
    elsewhere = set()
    for file in seen.iterdir():
        if int(file.name) not in there:
            elsewhere.update(file.read_bytes().split())
        file.unlink()
    unexplained = [
        body for body, answer in load_.failures if body in elsewhere or b"No response" not in answer
    ]
    for _, answer in load_.failures:
        print(f"  {answer[:300]!r}") if unexplained else None
    print(
        f"  Ray told after {reported_s:.2f} s, back after {back_s:.2f} s; {load_.answered} answers, "
        f"{len(load_.failures)} failures, {len(unexplained)} of them unexplained",
        flush=True,
    )
    return Loss(reported_s, back_s, load_.answered, len(load_.failures), len(unexplained))


def _is_back(of: Hosted, before: Mapping[str, Any], lost: str) -> bool:
    """Whether all instances serve, none of them one that was lost."""
    instances = {name for each in of.processes().values() for name in each.values()}
    return of.serving("six") == 6 == len(instances - set(before[lost].values()))


@dataclass(slots=True)
class Load:
    """Clients that ask one after the other, each request with a body of its own.

    Attributes:
        port: the host's.
        endpoint: whom they ask.
        failures: the bodies of the requests that failed, and their answers.
    """

    port: int
    endpoint: str
    failures: list[tuple[bytes, bytes]] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0] * _CLIENTS)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def answered(self) -> int:
        """How many requests were answered."""
        return sum(self._counts)

    def __enter__(self) -> "Load":
        self._threads = [threading.Thread(target=self._ask, args=[number]) for number in range(_CLIENTS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: int) -> None:
        path = f"/endpoints/{self.endpoint}/invocations"
        for number in itertools.count():
            body = f"{client}-{number}-{time.monotonic_ns()}".encode()
            call = Call(self.port, path, {}, body)
            try:
                with connected(call) as connection:
                    exchange(connection, call.message)
                self._counts[client] += 1
            except (BenchmarkError, OSError, IndexError) as error:
                self.failures.append((body, str(error).encode()))
            if self._stop.wait(0.002):
                return


# fifty instances


@cache
def longest_steps() -> Mapping[str, Sample]:
    """The longest step of the host's event loop while fifty instances are created, replaced and deleted.

    The processor time of a sample is the step's: the rest of its time, others had the processors.
    """
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "steps"
        file.touch()
        found: dict[str, Sample] = {}

        def note(what: str, since: float) -> None:
            every = sorted(steps(file, since), key=lambda step: -step.seconds)
            for step in every[:3]:
                print(
                    f"  {what}: {step.seconds * 1e3:.0f} ms, {step.cpu_s * 1e3:.0f} ms of a processor, {step.what}"
                )
            longest = every[0] if every else None
            found[what] = Sample(longest.seconds * 1e3, longest.cpu_s * 1e6) if longest else Sample(0)

        with fifty(Path(work), "-m", "benchmarks.watched_host", str(file)) as (of, _):
            moment = time.time()
            of.create("many", "first")
            note("create", moment)
            moment = time.time()
            of.update("many", "second")
            note("update", moment)
            moment = time.time()
            of.delete("many")
            note("delete", moment)
        return found


@dataclass(frozen=True, slots=True)
class Footprint:
    """What fifty instances take that do nothing.

    Attributes:
        host_mb: resident memory of the host and its engine.
        idle_percent: what these use of a core.
        worker_mb: memory that the worker of an instance has for itself.
        keeper_mb: resident memory of what waits for its end.
    """

    host_mb: float
    idle_percent: float
    worker_mb: float
    keeper_mb: float


@cache
def footprint() -> Footprint:
    """Measured once for several rows."""
    with tempfile.TemporaryDirectory() as work, fifty(Path(work), "-m", "halimede", "host") as (of, cluster):
        of.create("many", "first")
        time.sleep(_SETTLE_S)
        host = [each.pid for each in tree(of.server.child.pid)]
        before, began = of.server.cpu_seconds(), time.monotonic()
        time.sleep(_IDLE_S)
        idle = (of.server.cpu_seconds() - before) / (time.monotonic() - began)
        for pid in host:
            print(f"  {resident_mb(pid):.0f} MB: {command(pid).replace(bytes(1), b' ').decode()[:100]}")
        everything = {each.pid: command(each.pid) for each in tree(1)}
        below = {each.pid for each in tree(cluster.pid)}
        workers = [
            pid for pid, name in everything.items() if pid in below and name.startswith(b"ray::InstanceActor")
        ]
        nodes = str(of.nodes).encode()
        keepers = [pid for pid, name in everything.items() if name.startswith(b"/bin/sh") and nodes in name]
        found = Footprint(
            sum(map(resident_mb, host)),
            100 * idle,
            sum(map(unique_memory_mb, workers)) / len(workers),
            sum(map(resident_mb, keepers)) / len(keepers),
        )
        of.delete("many")
        return found


@contextmanager
def fifty(directory: Path, *host: str) -> Iterator[tuple[Hosted, RayCluster]]:
    """A host on a cluster of five nodes, with two configurations of fifty tiny instances."""
    with (
        cluster_of(dict.fromkeys("abcde", 4)) as cluster,
        hosting(directory / "ray", cluster=cluster, program=host) as of,
    ):
        for name in ("first", "second"):
            of.configure(name, MANY, Image=program(directory, TINY))
        yield of, cluster


@contextmanager
def instance_memory(_seconds: float) -> Iterator[Sides]:
    """What an instance takes of its node besides its own: Ray's worker; beside that, what waits for its end."""
    yield Sides(lambda: Sample(footprint().worker_mb), lambda: Sample(footprint().keeper_mb))
