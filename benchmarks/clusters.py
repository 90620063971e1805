"""Hosts on Ray clusters of several nodes on this machine, and what rows do with them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from benchmarks.errors import BenchmarkError
from benchmarks.hosting import await_ping
from benchmarks.processes import READY_WITHIN_S, Server, free_ports, process
from halimede.core.process_tree import tree
from halimede.hosting.substrates.processes import marked
from tests.support.ray_cluster import RayCluster, ray_cluster

TINY = """#!{python} -SE
import os, socketserver
from http.server import BaseHTTPRequestHandler

seen = open(os.environ["SEEN"] + "/" + str(os.getpid()), "ab", buffering=0) if "SEEN" in os.environ else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if seen is not None:
            seen.write(body + b"\\n")
        self.answer(body)

    def answer(self, body):
        head = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
        self.wfile.write(head + body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


Server(("", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""
"""The program of an instance that gives back what it gets, and says in a file what that was."""

SERVER = "#!/bin/sh\nexec {python} -m halimede sagemaker-serve\n"
"""The program of an instance that the host does not know to be of its own kind, and so reaches over TCP."""

_ROLE = "arn:aws:iam::000000000000:role/none"
_VARIANT = "one"
_POLL_S = 0.02
_IDLE_WORKER = b"ray::IDLE"


class Hosted:
    """A running host.

    Attributes:
        server: its process and port.
        sagemaker: a client of its control plane.
        nodes: where nodes keep what instances need, if it has a cluster.
    """

    def __init__(self, server: Server, nodes: Path) -> None:
        self.server = server
        self.nodes = nodes
        self.sagemaker: Any = boto3.client(
            "sagemaker", endpoint_url=f"http://127.0.0.1:{server.http_port}", region_name="us-east-1",
            aws_access_key_id="benchmark", aws_secret_access_key="benchmark",
            config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip

    def configure(self, name: str, count: int = 1, **container: Any) -> None:
        """A model and a configuration of so many instances."""
        self.sagemaker.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=_ROLE)
        variant = {"VariantName": _VARIANT, "ModelName": name, "InstanceType": "ml.local.cpu"}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": count}]
        )

    def create(self, name: str, config: str) -> float:
        """An endpoint, in service: the seconds that it took."""
        began = time.monotonic()
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config)
        self.settle(name)
        return time.monotonic() - began

    def update(self, name: str, config: str) -> None:
        """Give an endpoint another configuration, and return once it serves with that."""
        self.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=config)
        self.settle(name)

    def settle(self, name: str) -> None:
        """Return once an endpoint is in service.

        Raises:
            BenchmarkError: it fails, or is not after a while.
        """

        def is_settled() -> bool:
            return self.describe(name)["EndpointStatus"] in ("InService", "Failed")

        until(is_settled, f"the endpoint '{name}' to come up")
        if (endpoint := self.describe(name))["EndpointStatus"] != "InService":
            raise BenchmarkError(
                f"The endpoint is {endpoint['EndpointStatus']}: {endpoint.get('FailureReason')}"
            )

    def describe(self, name: str) -> Mapping[str, Any]:
        """What the host says of an endpoint."""
        found: Mapping[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return found

    def serving(self, name: str) -> int:
        """How many instances take requests."""
        count: int = self.describe(name)["ProductionVariants"][0]["CurrentInstanceCount"]
        return count

    def delete(self, name: str) -> None:
        """Delete an endpoint, and return once it is gone."""
        self.sagemaker.delete_endpoint(EndpointName=name)

        def is_gone() -> bool:
            every = self.sagemaker.list_endpoints(NameContains=name)["Endpoints"]
            return name not in [each["EndpointName"] for each in every]

        until(is_gone, f"the endpoint '{name}' to go")

    def processes(self) -> Mapping[str, Mapping[int, str]]:
        """Node → the processes of instances there, with their instances."""
        found: dict[str, dict[int, str]] = {}
        for pid, mark in marked(self.nodes).items():
            found.setdefault(mark.parent.parent.name, {})[pid] = mark.name
        return found


@contextmanager
def hosting(
    directory: Path,
    *flags: str,
    cluster: RayCluster | None = None,
    program: Sequence[str] = ("-m", "halimede", "host"),
) -> Iterator[Hosted]:
    """A host in a directory of its own, on a cluster if there is one; program: what is run for it."""
    [port] = free_ports(1)
    nodes = directory / "nodes"
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *program, "--port", str(port), "--directory", str(directory / "host"),
               "--describe-hold", "0", *flags]  # fmt: skip
    if cluster is not None:
        command += ["--substrate=ray", f"--ray-address={cluster.address}", f"--node-directory={nodes}"]
    with (
        (directory / "host.log").open("ab") as log,
        process(command, stdout=log, stderr=log) as child,
    ):
        server = Server(child, port, 0)
        await_ping(server)
        yield Hosted(server, nodes)


@contextmanager
def cluster_of(nodes: Mapping[str, int], *, warm: bool = False) -> Iterator[RayCluster]:
    """A cluster of a head without processors and of nodes with so many; Ray's workers have a low priority, as always.

    Args:
        nodes: name → processors.
        warm: each gets a worker or two that wait for an actor.
    """
    with ray_cluster(RAY_worker_niceness="15", RAY_enable_worker_prestart=str(int(warm))) as cluster:
        for name, cpus in nodes.items():
            cluster.add(name, num_cpus=cpus)
        yield cluster


def await_warm(cluster: RayCluster) -> None:
    """Return once a worker waits for an actor."""
    until(
        lambda: any(command(each.pid).startswith(_IDLE_WORKER) for each in tree(cluster.pid)),
        "a worker of Ray",
    )


def command(pid: int) -> bytes:
    """The words of a process's command; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def program(directory: Path, text: str) -> str:
    """The path of a program that images can be."""
    file = directory / "program"
    file.write_text(text.format(python=sys.executable))
    file.chmod(0o755)
    return str(file)


@contextmanager
def reports(cluster: RayCluster) -> Iterator[Callable[[str], float]]:
    """What gives the time at which Ray reported the death of a node, once it has."""
    command = [sys.executable, "-m", "benchmarks.ray_nodes", cluster.address]
    with process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            raise BenchmarkError(f"Ray's nodes at {cluster.address} cannot be seen")
        lines = iter(child.stdout.readline, b"")

        def reported(node: str) -> float:
            for line in lines:
                name, _, when = line.decode().partition(" ")
                if name == node:
                    return float(when)
            raise BenchmarkError("Ray has not said that the node is dead")

        yield reported


def until(condition: Callable[[], bool], what: str) -> None:
    """Return once something is so.

    Raises:
        BenchmarkError: it is not after a while.
    """
    end = time.monotonic() + READY_WITHIN_S
    while not condition():
        if time.monotonic() > end:
            raise BenchmarkError(f"Waited in vain for {what}")
        time.sleep(_POLL_S)


def unique_memory_mb(pid: int) -> float:
    """Memory that a process shares with nobody, in MB of 10^6 bytes."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1])
    return total * 1024 / 1e6
