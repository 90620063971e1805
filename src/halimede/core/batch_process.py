"""Hands batches of what is known of requests to a process that does more with them than the server has time for."""

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

logger = logging.getLogger("halimede")

_MOST_WAITING: Final = 8 << 20
"""Bytes that may wait to be handed on; more are dropped, as memory must not grow while a disk or a reader is slow."""


class BatchProcess:
    """A process that reads batches from its standard input. If it dies, another is started.

    Args:
        name: what the log calls it.
        module: what it runs, which is to end when its standard input does.
        arguments: of the module.
        on_dropped: told how many items were dropped as the process is too slow, on a thread.
        on_line: told each line that the process writes to its standard output, on a thread; None if it writes none.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        on_dropped: Callable[[int], None],
        on_line: Callable[[bytes], None] | None = None,
    ) -> None:
        self._name = name
        self._command = [sys.executable, "-m", module, *arguments]
        self._on_dropped = on_dropped
        self._on_line = on_line
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._ending = False
        self._changed = threading.Condition()
        self._process = self._start()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(  # noqa: S603 - our own module
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if self._on_line is None else subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # an interrupt at the terminal is for the server
        )
        if self._on_line is not None:
            reader = threading.Thread(target=self._read, args=(process,), name=self._name, daemon=True)
            reader.start()
        return process

    def write(self, batch: bytes, items: int) -> None:
        """Hand on a batch of so many items, soon."""
        with self._changed:
            if self._waiting_bytes + len(batch) > _MOST_WAITING:
                self._dropped += items
            else:
                self._waiting.append(batch)
                self._waiting_bytes += len(batch)
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Hand on what waits: whether that, and then the process's end, took no longer than `timeout_s` each."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the process; what it has of batches is lost."""
        self._process.kill()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        assert self._on_line is not None
        with process.stdout as lines:
            for line in lines:
                self._on_line(line)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._dropped or self._ending):
                    self._changed.wait()
                batch = self._waiting.popleft() if self._waiting else b""
                self._waiting_bytes -= len(batch)
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._on_dropped(dropped)
            if batch:
                self._hand_on(batch)
            elif not dropped:
                break
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
                logger.error("%s: its process ended with status %d; another is started", self._name, status)
                self._process.stdin.close()
                self._process = self._start()
            else:
                return
