"""A zygote that runs: how it is started, asked for workers, listened to and ended.

A thread listens to it. When it was killed, its workers go on, and the thread watches them itself.
"""

import logging
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from importlib.machinery import EXTENSION_SUFFIXES
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

import halimede_worker
from halimede.core.errors import InternalError
from halimede.workers.exit_reason import ExitReason
from halimede.workers.process import WorkerProcess
from halimede_worker import descriptors
from halimede_worker import zygote as protocol

logger = logging.getLogger("halimede")

START_SECONDS = 60.0
"""How long it may take until an interpreter has imported what workers need, which may come from a slow disk."""

SPAWN_SECONDS = 30.0

_CLOSE_SECONDS = 5.0
_OUTPUT_BYTES = 16384

_BOOTSTRAP = """
import sys
if sys.version_info < (3, 8):
    sys.exit("Python 3.8 or later is needed, and this is " + sys.version.split()[0])
del sys.path[: sys.path[:1] == [""]]  # what lies where the server was started does not belong to it
sys.path.append(sys.argv[1])
from halimede_worker.zygote import serve
serve(*sys.argv[2:])()
"""


class GoneError(Exception):
    """The zygote has ended."""


class ZygoteProcess:
    """A zygote that runs. May be used from any thread.

    Attributes:
        gone: it takes no more workers.
    """

    def __init__(self, python: Path, environment: Mapping[str, str | None], main: str, idle_s: float) -> None:
        """Start it, and wait until it is ready.

        Args:
            python: the interpreter.
            environment: variables that are set, or with None removed, on top of the server's.
            main: what workers run, as `module:function`.
            idle_s: it ends when it has had no worker for so long.

        Raises:
            InternalError: it does not start.
        """
        self.gone = False
        self._python = python
        self._idle_s = idle_s
        self._closing = False
        self._lock = threading.Lock()  # of `gone`, the count, the workers and those that are awaited
        self._sending = threading.Lock()
        self._count = 0
        self._awaited: dict[int, tuple[WorkerProcess, Future[None]]] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._started: Future[None] = Future()
        self._said = b""
        self._start(environment, main)
        self._thread = threading.Thread(target=self._listen, name="halimede-zygote", daemon=True)
        self._thread.start()
        try:
            self._started.result(START_SECONDS)
        except TimeoutError:
            self._kill()
            raise InternalError(
                f"cannot start workers with '{python}': it was not ready within {START_SECONDS:g} s"
            ) from None

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def watches(self) -> bool:
        """It, or a worker that it has forked, is still there."""
        return self._thread.is_alive()

    def _start(self, environment: Mapping[str, str | None], main: str) -> None:
        changed = {**os.environ, **environment}
        site = str(Path(halimede_worker.__file__).parent.parent)
        numpy_directory = str(Path(np.__file__).parent.parent)
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                self._socket, their_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
                ours.callback(self._socket.close)
                theirs.callback(their_socket.close)
                reading, writing = os.pipe()
                self._output = FileIO(reading, "r")
                ours.callback(self._output.close)
                theirs.callback(os.close, writing)
                os.set_blocking(reading, False)
                descriptor = their_socket.fileno()
                arguments = [site, str(descriptor), main, EXTENSION_SUFFIXES[0], numpy_directory]
                # Its end of the socket tells it that the server is dead. (The kernel's signal for that comes when
                # the *thread* that started it ends.) In its own session it gets no signal from the terminal.
                self._process = subprocess.Popen(  # noqa: S603 - an interpreter that the configuration names
                    [self._python, "-u", "-X", "faulthandler", "-c", _BOOTSTRAP, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                    env={name: value for name, value in changed.items() if value is not None},
                    pass_fds=[descriptor],
                    start_new_session=True,
                )
            except OSError as error:
                msg = f"cannot run the Python interpreter '{self._python}': {descriptors.reason(error)}"
                raise InternalError(msg) from None
            ours.pop_all()
        patience = struct.pack("@ll", int(SPAWN_SECONDS), 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def spawn(self, loop: AbstractEventLoop, settings: dict[str, Any], name: str) -> WorkerProcess:
        """A new worker process.

        Raises:
            GoneError: the zygote has ended.
            InternalError: there is no room for another process.
        """
        try:
            worker = WorkerProcess(loop)
        except OSError as error:
            raise InternalError(f"cannot start a worker process: {descriptors.reason(error)}") from None
        try:
            self._fork(worker, settings, name).result(SPAWN_SECONDS)
        except TimeoutError:
            worker.close()
            self._kill()
            raise InternalError(f"no worker process was started within {SPAWN_SECONDS:g} s") from None
        except BaseException:
            worker.close()
            raise
        return worker

    def _fork(self, worker: WorkerProcess, settings: dict[str, Any], name: str) -> "Future[None]":
        forked: Future[None] = Future()
        with self._lock:
            if self.gone:
                raise GoneError
            self._count += 1
            number = self._count
            self._awaited[number] = worker, forked
        try:
            with self._sending:
                protocol.send(self._socket, (protocol.SPAWN, number, name, settings), worker.descriptors)
        except ValueError:
            with self._lock:
                del self._awaited[number]
            raise
        except BlockingIOError:
            raise TimeoutError from None
        except OSError:
            pass  # it has ended, which the thread will see in a moment
        finally:
            worker.hand_over()
        return forked

    def close(self) -> None:
        """End it and its workers. Blocks."""
        self._closing = True
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.kill()
        self._dismiss()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self._kill()
            self._thread.join(_CLOSE_SECONDS)

    def _kill(self) -> None:
        """End it, though not its workers, which have groups of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _dismiss(self) -> None:
        """Tell it to end."""
        with self._lock:
            self.gone = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    # In the thread

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        poller.register(self._output, select.POLLIN)
        try:
            while True:
                events = poller.poll(self._patience_ms())
                if not events and self._is_idle():
                    self._closing = True
                    self._dismiss()
                for descriptor, _ in events:
                    if descriptor == self._socket.fileno():
                        self._handle(*protocol.receive(self._socket)[0])
                    elif self._read_output() == b"":
                        poller.unregister(self._output)
        except EOFError:
            pass
        except Exception:  # nobody would hear of its workers any more
            logger.exception("the parent process of Python workers (%d) is ended", self.pid)
            self._kill()
        self._over()

    def _patience_ms(self) -> int | None:
        with self._lock:
            busy = self._workers or self._awaited or self.gone or not self._started.done()
        return None if busy else int(self._idle_s * 1000)

    def _is_idle(self) -> bool:
        with self._lock:
            idle = not (self._workers or self._awaited)
            self.gone = self.gone or idle
            return idle

    def _read_output(self) -> bytes | None:
        data = self._output.read(_OUTPUT_BYTES)
        self._said = (self._said + (data or b""))[-_OUTPUT_BYTES:]
        return data

    def _handle(self, kind: int, *arguments: Any) -> None:
        if kind == protocol.STARTED:
            self._started.set_result(None)
        elif kind == protocol.REFUSED:
            self._started.set_exception(InternalError(f"'{self._python}': {arguments[0]}"))
        elif kind == protocol.SPAWNED:
            number, pid = arguments
            with self._lock:
                worker, forked = self._awaited.pop(number)
                worker.pid = pid
                self._workers[pid] = worker
            forked.set_result(None)
        elif kind == protocol.FAILED:
            number, why = arguments
            with self._lock:
                _, forked = self._awaited.pop(number)
            forked.set_exception(InternalError(f"cannot start a worker process: {why}"))
        elif kind == protocol.EXITED:
            pid, status = arguments
            with self._lock:
                worker = self._workers.pop(pid)
            worker.ended(status)

    def _over(self) -> None:
        """The zygote has ended, or is about to."""
        try:
            status = self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            status = self._process.wait()
        while self._read_output():
            pass
        self._output.close()
        # as `subprocess` tells it, a signal is a negative status
        words = ExitReason(-status if status < 0 else status << 8).words
        said = self._said.decode(errors="replace").strip()
        words += f": {said}" if said else ""
        with self._lock:
            self.gone = True
            awaited = list(self._awaited.values())
            self._awaited.clear()
            orphans = list(self._workers.values())
        with self._sending:
            self._socket.close()
        if not self._started.done():
            self._started.set_exception(InternalError(f"cannot start workers: '{self._python}' {words}"))
        elif not self._closing and self._started.exception() is None:
            logger.warning(
                "the parent process of Python workers (%d, '%s') %s; its workers go on, and the next one gets a new "
                "parent", self.pid, self._python, words,
            )  # fmt: skip
        for _, forked in awaited:
            forked.set_exception(GoneError(f"its parent process {words}"))
        _watch_orphans(orphans)
        with self._lock:
            self._workers.clear()


def _watch_orphans(workers: list[WorkerProcess]) -> None:
    """Report the ends of processes whose parent is dead. Blocks until all have ended."""
    poller = select.poll()
    watched: dict[int, WorkerProcess] = {}
    for worker in workers:
        try:
            descriptor = os.pidfd_open(worker.pid)
        except ProcessLookupError:
            worker.ended(None)
        except OSError:  # not to be had here: nobody would learn of its end
            worker.kill()
            worker.ended(None)
        else:
            watched[descriptor] = worker
            poller.register(descriptor, select.POLLIN)
    while watched:
        for descriptor, _ in poller.poll():
            worker = watched.pop(descriptor)
            poller.unregister(descriptor)
            os.close(descriptor)
            worker.ended(_status(worker.pid))


def _status(pid: int) -> int | None:
    """The wait status of a process that may have become ours, as it does where the server is process 1."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if ended else None
