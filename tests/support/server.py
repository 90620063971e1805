"""A real server process, for end-to-end tests."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support.forks import Process, start
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

FRONT_ENDS = int(os.environ.get("TEST_FRONT_ENDS", "1"))
"""How many front ends the servers of tests have."""

_STARTED = re.compile(
    r"Started ((?:Sagemaker |Vertex AI )?HTTPService|GRPCInferenceService|Metrics Service) at ([0-9.]+:\d+)"
)


class ServerProcess:
    """A running `halimede serve`.

    Attributes:
        process: the process.
        http, grpc, metrics, sagemaker, vertex_ai: where it serves, as ``host:port``; "" for what it does not.
    """

    def __init__(self, process: Process, log: IO[bytes]) -> None:
        self.process = process
        self._log = log
        self.http = self.grpc = self.metrics = self.sagemaker = self.vertex_ai = ""

    @property
    def log(self) -> str:
        """What it has written so far, standard output and error together."""
        return complete_lines(self._log.name)

    def get(self, path: str, address: str = "") -> tuple[int, bytes]:
        """Status and body of a GET over HTTP."""
        try:
            with urllib.request.urlopen(f"http://{address or self.http}{path}", timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def wait_for(self, text: str, timeout: float = 60, times: int = 1) -> None:
        """Return once the log has that text so many times."""
        self.wait_until(lambda: self.log.count(text) >= times, f"the log to have {text!r}", timeout)

    def wait_until_open(self, endpoints: int, timeout: float = 90) -> None:
        """Return once so many endpoints are open; their addresses are known then."""
        self.wait_until(lambda: len(_STARTED.findall(self.log)) == endpoints, "open sockets", timeout)
        addresses = dict(_STARTED.findall(self.log))
        self.http = addresses.get("HTTPService", "")
        self.grpc = addresses.get("GRPCInferenceService", "")
        self.metrics = addresses.get("Metrics Service", "")
        self.sagemaker = addresses.get("Sagemaker HTTPService", "")
        self.vertex_ai = addresses.get("Vertex AI HTTPService", "")

    def wait_until_ready(self, timeout: float = 60) -> None:
        """Return once the server says that it is ready, over HTTP or to SageMaker."""
        path = "/v2/health/ready" if self.http else "/ping"

        def is_ready() -> bool:
            try:
                return self.get(path, self.http or self.sagemaker)[0] == 200
            except urllib.error.URLError:  # it has ended, which is found next
                return False

        self.wait_until(is_ready, "readiness", timeout)

    def stop(self, timeout: float = 30) -> int:
        """Send SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Return once the condition holds."""

        def holds() -> bool:
            if condition():
                return True
            status = self.process.poll()
            assert status is None, f"the server ended with {status} before {what}:\n{self.log}"
            return False

        wait_until(holds, lambda: f"{what}:\n{self.log}", timeout)


@contextmanager
def start_server(
    repository: Path | str, *flags: str, ready: bool = True, program: str = "halimede"
) -> Iterator[ServerProcess]:
    """A server on free ports of 127.0.0.1, ended at the end of the block.

    Args:
        repository: its model repository.
        flags: further flags.
        ready: whether to wait until it is ready; otherwise only until its sockets are open.
        program: the module that is run.
    """
    command = [
        sys.executable, "-m", program, "serve", f"--model-repository={repository}",
        "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0",
        "--metrics-port=0", "--sagemaker-address=127.0.0.1", "--sagemaker-port=0",
        "--vertex-ai-address=127.0.0.1", "--vertex-ai-port=0", f"--front-ends={FRONT_ENDS}", *flags,
    ]  # fmt: skip
    closed = sum(f"--allow-{name}=false" in flags for name in ("http", "grpc", "metrics"))
    closed -= sum(f"--allow-{name}=true" in flags for name in ("sagemaker", "vertex-ai"))
    with running(command, 3 - closed, ready=ready) as server:
        yield server


@contextmanager
def running(
    command: Sequence[str],
    endpoints: int,
    *,
    ready: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """The server that a command starts, ended at the end of the block.

    Args:
        command: the program and its arguments.
        endpoints: how many endpoints it opens.
        ready: whether to wait until it is ready; otherwise only until its sockets are open.
        environment: its environment variables; those of this process if None.
    """
    with tempfile.NamedTemporaryFile() as log:
        process = start(command, log, environment=environment)
        try:
            server = ServerProcess(process, log)
            server.wait_until_open(endpoints)
            if ready:
                server.wait_until_ready()
            yield server
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def run_command(*arguments: str, timeout: float = 30) -> "subprocess.CompletedProcess[str]":
    """What `halimede` with those arguments wrote, and its exit status."""
    command = [sys.executable, "-m", "halimede", *arguments]
    with tempfile.TemporaryFile("w+b") as output, tempfile.TemporaryFile("w+b") as errors:
        process = start(command, output, errors)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        written = []
        for file in (output, errors):
            file.seek(0)
            written.append(file.read().decode())
    return subprocess.CompletedProcess(command, status, *written)
