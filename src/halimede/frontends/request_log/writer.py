"""Hands batches of requests to the process that writes the access log, on a thread of its own."""

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Final

from halimede.frontends.request_log.line_file import open_file

logger = logging.getLogger("halimede")

_MOST_WAITING: Final = 8 << 20
"""Bytes that may wait to be handed on; more are dropped, as memory must not grow while a disk or a reader is slow."""

_PROCESS: Final = "halimede.frontends.request_log.formatting"


class BatchWriter:
    """A process that writes the access log, and the batches that wait for it. If the process dies, another is started.

    Args:
        form: of the lines, text or json.
        path: the file; None for standard error.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, form: str, path: Path | None) -> None:
        if path is not None:
            os.close(open_file(path))  # told now, and to the one who started the server
        self._arguments = [form] if path is None else [form, str(path.absolute())]
        self._process = self._start()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROCESS, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # an interrupt at the terminal is for the server
        )

    def write(self, batch: bytes, lines: int) -> None:
        """Write a pickled batch of so many lines, soon."""
        with self._changed:
            if self._waiting_bytes + len(batch) > _MOST_WAITING:
                self._dropped += lines
                return
            self._waiting.append(batch)
            self._waiting_bytes += len(batch)
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write what waits, as long as that takes no longer than `timeout_s`."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                logger.warning("access log: the last lines are still being written")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    break
                batch = self._waiting.popleft()
                self._waiting_bytes -= len(batch)
                dropped, self._dropped = self._dropped, 0
            if dropped:
                logger.warning(
                    "access log: %d lines were dropped, as they are not written fast enough", dropped
                )
            self._hand_on(batch)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _hand_on(self, batch: bytes) -> None:
        for _ in range(2):
            assert self._process.stdin is not None
            descriptor = self._process.stdin.fileno()
            try:
                view = memoryview(batch)
                while view:
                    view = view[os.write(descriptor, view) :]
            except BrokenPipeError:
                status = self._process.wait()
                logger.error("access log: its process ended with status %d; another is started", status)
                self._process.stdin.close()
                self._process = self._start()
            else:
                return
