"""Writes the log to a pipe or a terminal without waiting for whoever reads it, as requests would wait too."""

import os
import select
import stat
import threading
from collections import deque
from contextlib import suppress
from typing import Final, TextIO

MAX_WAITING: Final = 1 << 20
"""Bytes that may wait for the reader; more lines are dropped."""

_ROOM: Final = select.PIPE_BUF
"""Bytes that can be written at once when `poll` says that there is room."""

_CLOSE_S: Final = 1.0


class LogStream:
    """A stream that is written at once while it has room. Lines that it has no room for wait, up to a limit.

    Args:
        stream: of a file descriptor.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @staticmethod
    def suits(stream: TextIO) -> bool:
        """Whether writing to a stream may have to wait for a reader."""
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except (OSError, ValueError):  # it is none of the system's
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISBLK(mode))

    def write(self, text: str) -> None:
        """Write some lines, now or when there is room."""
        data = text.encode(self._stream.encoding or "utf-8", "backslashreplace")
        with self._changed:
            if not self._waiting_bytes and len(data) <= _ROOM and self._poll.poll(0):
                self._stream.flush()  # what was printed before
                self._write(data)
            elif self._waiting_bytes + len(data) > MAX_WAITING:
                self._dropped += 1
            else:
                self._wait(data)

    def _wait(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Write what waits, until nothing does."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                data = self._waiting.popleft()
                if not self._waiting and self._dropped:
                    self._waiting.append(
                        f"… {self._dropped} lines of the log are missing here, as they were not read in time\n".encode()
                    )
                    self._waiting_bytes += len(self._waiting[0])
                    self._dropped = 0
            self._write(data)
            with self._changed:
                self._waiting_bytes -= len(data)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another program has set the pipe so
                self._poll.poll()
            except OSError:  # nobody will read it any more, which is no reason to fail
                data = b""
                with suppress(OSError):  # there may be no descriptor for it; the next line tries again
                    nowhere = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nowhere, self._descriptor)  # Python writes what is left to it at exit
                    os.close(nowhere)

    def close(self) -> None:
        """Wait for the lines that are not written yet, though not for long."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None, _CLOSE_S)
