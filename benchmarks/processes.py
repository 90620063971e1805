"""Processes under measurement: started on given cores, asked over HTTP, weighed through /proc, ended by signal."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.errors import BenchmarkError
from halimede.core.process_tree import tree

READY_WITHIN_S = 180
STOPPED_WITHIN_S = 30
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cores() -> tuple[set[int], set[int]]:
    """The cores of the server and of the client: one each where there are two or more."""
    available = sorted(os.sched_getaffinity(0))
    return {available[0]}, {available[min(1, len(available) - 1)]}


@contextmanager
def pinned(on_cores: Collection[int]) -> Iterator[None]:
    """This process keeps to those cores meanwhile, and what it starts keeps to them for good."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, on_cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def process(
    command: Sequence[str | Path], on_cores: Collection[int] | None = None, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A running process, on those cores only if they are given; it and what it started are ended at the close."""
    with pinned(on_cores or os.sched_getaffinity(0)):
        child = subprocess.Popen(command, **options)
    try:
        yield child
    finally:
        started = [] if child.poll() is not None else tree(child.pid)[1:]
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for orphan in started:
            orphan.kill()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


class Server:
    """A running HTTP and gRPC server.

    Attributes:
        trust: what trusts its certificate; None if it speaks without TLS.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        http_port: int,
        grpc_port: int,
        metrics_port: int = 0,
        *,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.child = child
        self.http_port = http_port
        self.grpc_port = grpc_port
        self.metrics_port = metrics_port
        self.trust = trust

    def request(
        self, method: str, path: str, body: bytes = b"", port: int = 0, **headers: str
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers of the answer; at the port for HTTP, if no other is given."""
        place = ("127.0.0.1", port or self.http_port)
        if self.trust is None or port:
            connection = http.client.HTTPConnection(*place, timeout=60)
        else:
            connection = http.client.HTTPSConnection(*place, timeout=60, context=self.trust)
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, names)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def get(self, path: str) -> bytes:
        """The body that a GET brings; anything but 200 ends the benchmark."""
        status, body, _ = self.request("GET", path)
        if status != 200:
            raise BenchmarkError(
                f"GET {path} on port {self.http_port}: {status} {body.decode(errors='replace')}"
            )
        return body

    def counter(self, name: str) -> float:
        """The sum of a metric over its labels."""
        _, text, _ = self.request("GET", "/metrics", port=self.metrics_port)
        lines = [line for line in text.decode().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        if not lines:
            raise BenchmarkError(f"There is no metric {name}")
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def requests_served(self, model: str) -> int:
        """How many inference requests the server has completed."""
        [statistics] = json.loads(self.get(f"/v2/models/{model}/stats"))["model_stats"]
        return int(statistics["inference_stats"]["success"]["count"])

    def cpu_seconds(self) -> float:
        """CPU time that it and all processes below it have used, in user and kernel mode."""
        return sum(one.cpu_ticks for one in tree(self.child.pid)) / TICKS_PER_SECOND

    def resident_mb(self) -> float:
        """Resident memory."""
        return resident_mb(self.child.pid)

    def resident_mb_of_all(self) -> float:
        """Resident memory of it and of all processes below it; what they share counts for each."""
        return sum(resident_mb(one.pid) for one in tree(self.child.pid))

    def await_ready(self) -> None:
        """Return as soon as the server says that it is ready."""
        self._await(lambda status: status == 200, "ready")

    def await_answer(self) -> None:
        """Return as soon as the server says whether it is ready."""
        self._await(lambda _: True, "reachable")

    def _await(self, wanted: Callable[[int], bool], what: str) -> None:
        """Return as soon as the status of its readiness is a wanted one."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise BenchmarkError(
                    f"The server ended with code {self.child.returncode} before it was {what}"
                )
            with suppress(OSError, http.client.HTTPException):
                if wanted(self.request("GET", "/v2/health/ready")[0]):
                    return
            time.sleep(0.002)
        raise BenchmarkError(f"The server was not {what} within {READY_WITHIN_S} s")


@contextmanager
def halimede(
    repository: Path,
    on_cores: Collection[int] | None = None,
    arguments: Sequence[str] = (),
    *,
    ready: bool = True,
    log: IO[bytes] | None = None,
    trust: ssl.SSLContext | None = None,
) -> Iterator[Server]:
    """`halimede serve` on free ports, ready, or if that is not asked for as soon as its HTTP port is open.

    Warnings and errors go to the log if there is one, and to standard error otherwise. With `trust`, the arguments make
    it serve HTTP over TLS, with a certificate that `trust` accepts.
    """
    ports = free_ports(3)
    command = [sys.executable, "-m", "halimede", "serve", *server_arguments(repository, ports), *arguments]
    with process(command, on_cores, stdout=subprocess.DEVNULL, stderr=log) as child:
        server = Server(child, *ports, trust=trust)
        server.await_ready() if ready else server.await_answer()
        yield server


def server_arguments(repository: Path | str, ports: Sequence[int]) -> list[str]:
    """Arguments for a quiet server on the ports for HTTP, gRPC and metrics; they are the same for tritonserver."""
    arguments = [f"--model-repository={repository}", "--log-info=false"]
    for service, port in zip(("http", "grpc", "metrics"), ports, strict=True):
        arguments += [f"--{service}-address=127.0.0.1", f"--{service}-port={port}"]
    return arguments


def free_ports(count: int) -> list[int]:
    """Port numbers that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MB of 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise BenchmarkError(f"/proc/{pid}/status has no VmRSS")
