"""Zygotes: processes that have imported what workers need, and from which workers are forked.

There is one for each interpreter and set of environment variables. It is started when the first worker needs it, ends
when it has had no worker for some minutes, and is started again when the next one needs it.
"""

import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halimede.core.errors import InternalError
from halimede.workers.process import WorkerProcess
from halimede.workers.zygote_process import GoneError, ZygoteProcess

MAIN = "halimede_worker.main:run"

IDLE_SECONDS = 300.0
"""A zygote ends when it has had no worker for so long."""


class Zygotes:
    """The zygotes of a server. May be used from any thread."""

    def __init__(self, main: str = MAIN) -> None:
        """None, so far.

        Args:
            main: what workers run, as `module:function`.
        """
        self._main = main
        self._lock = threading.Lock()
        self._zygotes: dict[object, Zygote] | None = {}

    def spawn(
        self,
        loop: AbstractEventLoop,
        python: Path | None,
        environment: Mapping[str, str | None],
        settings: dict[str, Any],
        name: str = "worker",
    ) -> WorkerProcess:
        """A new worker process. Blocks, for a moment or while a zygote starts.

        Args:
            loop: where the process will be served.
            python: the interpreter; None for the server's own.
            environment: variables that are set, or with None removed, on top of the server's.
            settings: what the worker's main function is told; simple values only.
            name: what the process is called, after `halimede-`.

        Raises:
            InternalError: it cannot be started.
        """
        python = python or Path(sys.executable)
        try:
            found = python.lstat()
        except OSError as error:
            raise InternalError(f"cannot run the Python interpreter '{python}': {error.strerror}") from None
        # an environment that was built anew under an old name has nothing to do with what was there
        key = (python, found.st_ino, found.st_mtime_ns, frozenset(environment.items()))
        with self._lock:
            if self._zygotes is None:
                raise InternalError("cannot start a worker process: the server is stopping")
            zygote = self._zygotes.get(key)
            if zygote is None:
                zygote = self._zygotes[key] = Zygote(python, environment, self._main)
        return zygote.spawn(loop, settings, name)

    def close(self) -> None:
        """End all zygotes, and the workers that still run. Blocks."""
        with self._lock:
            zygotes, self._zygotes = self._zygotes or {}, None
        for zygote in zygotes.values():
            zygote.close()


class Zygote:
    """A zygote that is started when it is needed, and again after it has ended. May be used from any thread."""

    def __init__(
        self, python: Path, environment: Mapping[str, str | None], main: str, idle_s: float = IDLE_SECONDS
    ) -> None:
        self._python = python
        self._environment = environment
        self._main = main
        self._idle_s = idle_s
        self._lock = threading.Lock()
        # the last one, and those before it that still have workers
        self._processes: list[ZygoteProcess] = []
        self._closed = False

    @property
    def pid(self) -> int:
        """The zygote's process; 0 while there is none."""
        return next((process.pid for process in self._processes if not process.gone), 0)

    def spawn(self, loop: AbstractEventLoop, settings: dict[str, Any], name: str) -> WorkerProcess:
        """A new worker process; see `Zygotes.spawn`."""
        try:
            return self._running().spawn(loop, settings, name)
        except GoneError:  # it ended at that moment
            pass
        try:
            return self._running().spawn(loop, settings, name)
        except GoneError as error:
            raise InternalError(f"cannot start a worker process with '{self._python}': {error}") from None

    def _running(self) -> "ZygoteProcess":
        with self._lock:
            if self._closed:
                raise InternalError("cannot start a worker process: the server is stopping")
            for process in self._processes:
                if not process.gone:
                    return process
            process = ZygoteProcess(self._python, self._environment, self._main, self._idle_s)
            self._processes = [*(each for each in self._processes if each.watches), process]
            return process

    def close(self) -> None:
        """End it and its workers. Blocks."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.close()
