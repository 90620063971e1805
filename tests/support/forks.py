"""Servers and hosts as forks of a process that has imported what they need.

To import its modules takes a server or a host most of the time of a processor that its start takes. Here a process of
each kind does that once, and is forked for each server: the fork has its arguments, environment, directory and output,
runs `python -m halimede`, and is a child of the tests' process as any other.
"""

import atexit
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).parents[2]

_MODULES = {
    "serve": ("halimede.cli.serve", "halimede.cli.process", "uvloop"),
    "sagemaker-serve": ("halimede.cli.sagemaker.command", "halimede.cli.process", "uvloop"),
    "host": ("halimede.cli.hosting.host", "halimede.hosting.host", "uvloop"),
}
"""Command → what it imports before it does anything else."""

_OF_BUCKETS = ("halimede.repository.cloud.repositories", "halimede.repository.cloud.stores")
"""What a server imports too if models are in buckets."""

_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_", "MKL_")
"""What the names of variables begin with that a process reads only when it starts."""

_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of Linux."""

_FORKING = threading.Lock()
"""Held while this process takes orphans: no other one's end shall end that."""


class Fork:
    """A child of this process, as `subprocess.Popen` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within so many seconds.
        """
        with suppress(ProcessLookupError), os.fdopen(os.pidfd_open(self.pid)) as running:
            ended = select.poll()
            ended.register(running, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        status = self.poll()
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(["halimede"], timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Fork


def start(
    command: Sequence[str],
    output: IO[bytes],
    errors: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start a program that has nothing to read: a fork, if it is a command that serves.

    Args:
        command: the program and its arguments.
        output: the file of its standard output.
        errors: that of its standard error; the same if None.
        environment: its environment variables; those of this process if None.
    """
    given = dict(os.environ if environment is None else environment)
    if (modules := _modules(command)) and (server := _server(modules)).suits(given):
        return server.fork(command[3:], given, output, errors or output)
    return subprocess.Popen(
        command,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if errors is None else errors,
    )


class _Server:
    """The process that is forked."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno()), *modules]
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._variables = _read_at_start(os.environ)
        atexit.register(self._end)

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork can have this environment."""
        return _read_at_start(environment) == self._variables

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes]
    ) -> Fork:
        """A new fork."""
        sys.audit("tests.support.forks.fork")
        request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
        with _FORKING:
            # an orphan becomes the child of the next process above it that says so
            _set_subreaper(1)
            try:
                socket.send_fds(self._socket, [request], [output.fileno(), errors.fileno()])
                answer = self._socket.recv(64)
            finally:
                _set_subreaper(0)
        assert answer, "the process that is forked has ended"
        return Fork(int(answer))

    def _end(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()


@cache
def _server(modules: tuple[str, ...]) -> _Server:
    """The process that has imported these."""
    return _Server(modules)


def _modules(command: Sequence[str]) -> tuple[str, ...]:
    """What a command imports, if it is one that serves."""
    if tuple(command[:3]) != (sys.executable, "-m", "halimede"):
        return ()
    modules = _MODULES.get(command[3], ())
    has_buckets = any(each.startswith("--model-repository=") and "://" in each for each in command)
    return modules + _OF_BUCKETS if has_buckets else modules


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _set_subreaper(whether: int) -> None:
    status = ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, whether, 0, 0, 0)
    assert status == 0, os.strerror(ctypes.get_errno())
