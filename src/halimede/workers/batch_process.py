"""Hands batches of pickled records to a process that writes them somewhere, on a thread of its own.

So neither the making of texts nor a slow disk takes time of the server.
"""

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

logger = logging.getLogger("halimede")


class BatchProcess:
    """A process that reads batches from its standard input, and those that wait for it. If it dies, another is started.

    Attributes:
        dropped: records that were dropped.

    Args:
        module: what the process runs, as `python -m`.
        arguments: its arguments.
        name: what the log calls it.
        records: what the log calls what batches consist of.
        most_waiting: bytes that may wait to be handed on; more are dropped, as memory must not grow while a disk or
            a reader is slow.
        on_dropped: told how many records were dropped, on a thread; None to log that.
        on_line: told each line that the process writes to its standard output, on a thread; None if it writes none.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        name: str,
        records: str,
        most_waiting: int = 8 << 20,
        on_dropped: Callable[[int], None] | None = None,
        on_line: Callable[[bytes], None] | None = None,
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._name = name
        self._records = records
        self._most_waiting = most_waiting
        self._on_dropped = on_dropped or self._log_dropped
        self._on_line = on_line
        self._process = self._start()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self.dropped = 0
        self._untold = 0  # of those
        self._ending = False
        self._killed = False
        self._changed = threading.Condition()
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
            reader = threading.Thread(
                target=self._read_lines, args=(process, self._on_line), name=self._name, daemon=True
            )
            reader.start()
        return process

    def write(self, batch: bytes, records: int) -> None:
        """Write a pickled batch of so many records, soon."""
        with self._changed:
            if self._waiting and self._waiting_bytes + len(batch) > self._most_waiting:
                self._drop(records)
                return
            self._waiting.append((batch, records))
            self._waiting_bytes += len(batch)
            self._changed.notify()

    def _drop(self, records: int) -> None:
        self.dropped += records
        self._untold += records

    def close(self, timeout_s: float) -> bool:
        """Write what waits and end the process: whether that took no longer than `timeout_s`.

        What takes longer goes on, and the process is waited for all the same.
        """
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End the process, for good; the batches that it has are lost, and those that wait."""
        with self._changed:
            self._killed = self._ending = True
            self._waiting.clear()
            self._changed.notify()
            self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                batch, records = self._waiting.popleft() if self._waiting else (b"", 0)
                self._waiting_bytes -= len(batch)
                dropped, self._untold = self._untold, 0
            if dropped:
                self._on_dropped(dropped)
            if not batch:
                break
            try:
                taken = self._hand_on(batch)
            except Exception:  # of one batch; those that come later are written
                logger.exception("%s: %d %s are lost", self._name, records, self._records)
                taken = False
            if not taken:
                with self._changed:
                    self._drop(records)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _log_dropped(self, records: int) -> None:
        logger.warning(
            "%s: %d %s were dropped, as they are not written fast enough", self._name, records, self._records
        )

    def _hand_on(self, batch: bytes) -> bool:
        """Whether the process took a batch, or another one that was started in its place."""
        return self._send(batch) or (not self._killed and self._start_again() and self._send(batch))

    def _send(self, batch: bytes) -> bool:
        """Whether the process took all of a batch; it has ended otherwise."""
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        view = memoryview(batch)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except BrokenPipeError:
            return False
        return True

    def _start_again(self) -> bool:
        status = self._process.wait()
        try:
            successor = self._start()
        except OSError as error:
            logger.error(
                "%s: its process ended with status %d, and no other can be started: %s",
                self._name,
                status,
                error,
            )
            return False
        logger.error("%s: its process ended with status %d; another is started", self._name, status)
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._changed:
            self._process = successor
            if self._killed:
                successor.kill()
        return True

    def _read_lines(self, process: "subprocess.Popen[bytes]", on_line: Callable[[bytes], None]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    on_line(line)
                except Exception:  # of one line; the process would wait if the others were not read
                    logger.exception("%s: a line of its process cannot be used: %r", self._name, line)
