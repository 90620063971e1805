"""A real host process, for end-to-end tests."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.clients import Clients
from tests.support.forks import Process, start
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

_STARTED = re.compile(r"Started SageMaker host at \S+:(\d+)")


class HostProcess:
    """A running `halimede host`.

    Attributes:
        process: the process.
        directory: where it keeps everything.
        url: where it listens; "" while it does not.
        clients: those that were made.
    """

    def __init__(self, process: Process, directory: Path, log: Path) -> None:
        self.process = process
        self.directory = directory
        self.url = ""
        self.clients = Clients()
        self._known: dict[str, Any] = {}
        self._log = log

    @property
    def log(self) -> str:
        """What it has written so far, standard output and error together."""
        return complete_lines(self._log)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that point AWS's SDKs there, and nothing else that they would read."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {
            **others,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def client(self, service: str, **settings: Any) -> Any:
        """A boto3 client, which tries nothing twice and is closed with the host: one for the same arguments.

        To make a client takes ten times as long as a request. Threads can share one.
        """
        key = f"{service} {sorted(settings.items())}"
        if key not in self._known:
            self._known[key] = self.another_client(service, **settings)
        return self._known[key]

    def another_client(self, service: str, **settings: Any) -> Any:
        """The same, but a new one: its connections are its own, so that another router process may have them."""
        return self.clients.make(service, self.url, **settings)

    def wait_until_ready(self, timeout: float = 60) -> None:
        """Return once it answers."""
        self.wait_until(lambda: _STARTED.search(self.log), "an open socket", timeout)
        [port] = _STARTED.findall(self.log)
        self.url = f"http://127.0.0.1:{port}"
        self.wait_until(self._answers, "an answer", timeout)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=60):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return False

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def wait_until(
        self, condition: Callable[[], object], what: str, timeout: float = 60, longest_s: float = 0.02
    ) -> None:
        """Return once the condition holds, while the host runs; as `tests.support.waiting.wait_until`."""

        def holds() -> object:
            if found := condition():
                return found
            status = self.process.poll()
            assert status is None, f"the host ended with {status} before {what}"
            return None

        try:
            wait_until(holds, what, timeout, longest_s)
        except AssertionError as error:
            error.add_note(self.log)
            raise


@contextmanager
def start_host(directory: Path, *flags: str, ahead_s: float = 0.0) -> Iterator[HostProcess]:
    """A host on a free port of 127.0.0.1 that answers, ended at the end of the block with its instances.

    Args:
        directory: where it keeps everything; its log is beside that.
        flags: further flags.
        ahead_s: how far its clock is ahead.
    """
    log = directory.parent / f"{directory.name}-{time.monotonic_ns()}.log"
    program = ["tests.support.host_ahead", str(ahead_s)] if ahead_s else ["halimede", "host"]
    command = [sys.executable, "-m", *program, f"--directory={directory}", "--port=0", *flags]
    with log.open("wb") as output:
        process = start(command, output)
    host = HostProcess(process, directory, log)
    try:
        host.wait_until_ready()
        yield host
    finally:
        host.clients.close()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
