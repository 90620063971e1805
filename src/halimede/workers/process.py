"""A worker process from the server's side: its sockets, what it prints, its end."""

import asyncio
import os
import signal
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import ExitStack, suppress
from io import FileIO

from halimede.workers.exit_reason import ExitReason, count_oom_kills
from halimede_worker.stacks import SIGNAL

END_SECONDS = 5.0
"""How long a worker that was told to end may take before it is killed."""

CLOSED_GRACE_SECONDS = 0.5
"""How long a worker whose sockets have closed may take to end before it is killed."""

_READ_BYTES = 65536


class WorkerProcess:
    """A process that a zygote has forked. Lives on the event loop; `kill` and `ended` may come from any thread.

    Attributes:
        pid: its number.
        work: the server's end of the work socket.
        control: the server's end of the control socket.
        exit_reason: how it ended, once it has.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        """Make the sockets and pipes of a process that is about to be forked.

        Raises:
            OSError: there are too many open files.
        """
        self.pid = 0
        self.exit_reason: ExitReason | None = None
        self._loop = loop
        self._gone = False
        self._killed = False
        self._oom_kills = count_oom_kills()
        self._ended = asyncio.Event()
        self._on_exit: Callable[[str], None] | None = None
        self._on_output: Callable[[bytes, bool], None] | None = None
        self._timer: TimerHandle | None = None
        with ExitStack() as opened:
            self.work, work = _socket_pair(opened)
            self.control, control = _socket_pair(opened)
            output, output_end = _pipe(opened)
            errors, errors_end = _pipe(opened)
            opened.pop_all()
        self._theirs = (work, control, output_end, errors_end)
        self._pipes = {False: output, True: errors}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The ends for the worker: work, control, standard output, standard error."""
        return tuple(end.fileno() for end in self._theirs)

    def hand_over(self) -> None:
        """The worker has its ends, or never will: close them here, so that its death closes them for good."""
        for end in self._theirs:
            end.close()

    def on_exit(self, callback: Callable[[str], None]) -> None:
        """Call once when the process has ended, with what it did, as in "the process …".

        All that it printed has been passed to the callback for output by then.
        """
        if self.exit_reason is not None:
            self._loop.call_soon(callback, self.exit_reason.words)
        else:
            self._on_exit = callback

    def on_output(self, callback: Callable[[bytes, bool], None]) -> None:
        """Call with what the process prints as it comes, and whether on standard error; b"" ends either."""
        self._on_output = callback
        if self.exit_reason is not None:
            self._drain()
            self._on_output = None
            return
        for error, pipe in self._pipes.items():
            self._loop.add_reader(pipe.fileno(), self._read, error)

    def kill(self) -> None:
        """End the process, and what it has started, at once."""
        if self.pid and not self._gone:
            self._killed = True
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def write_stacks(self) -> None:
        """Have the process write the stacks of its threads to its standard error."""
        if self.pid and not self._gone:
            with suppress(ProcessLookupError):
                os.kill(self.pid, SIGNAL)

    def kill_soon(self) -> None:
        """End the process unless it does so itself at once: it is of no use, but may be about to tell why."""
        if self._timer is None and self.exit_reason is None:
            self._timer = self._loop.call_later(CLOSED_GRACE_SECONDS, self.kill)

    async def end(self, kill: bool = False, within_s: float = END_SECONDS) -> ExitReason:
        """Wait until the process has ended, and give everything back.

        Args:
            kill: do not wait, but kill it.
            within_s: it is killed when it takes longer.
        """
        if kill:
            self.kill()
        timer = self._loop.call_later(within_s, self.kill)
        try:
            await self._ended.wait()
        finally:
            timer.cancel()
        self.close()
        assert self.exit_reason is not None
        return self.exit_reason

    def ended(self, status: int | None) -> None:
        """Note that the process has ended, with what `os.waitpid` said, or None if nobody knows."""
        self._gone = True
        kills = count_oom_kills()
        during = None if kills is None or self._oom_kills is None else max(0, kills - self._oom_kills)
        with suppress(RuntimeError):  # the loop is closed, and nobody wants to know
            self._loop.call_soon_threadsafe(self._exit, ExitReason(status, self._killed, during))

    def close(self) -> None:
        """Close the server's ends."""
        self._close_pipes()
        self.work.close()
        self.control.close()
        self.hand_over()

    def _exit(self, reason: ExitReason) -> None:
        self.exit_reason = reason
        if self._timer is not None:
            self._timer.cancel()
        if self._on_output is not None:
            self._drain()
        self._ended.set()
        on_exit = self._on_exit
        self._on_exit = self._on_output = (
            None  # they refer to it, and are not to be left to the garbage collector
        )
        if on_exit is not None:
            on_exit(reason.words)

    def _read(self, error: bool) -> bool:
        """Pass on some of what it has printed: False when that is all for now."""
        pipe = self._pipes[error]
        data = pipe.read(_READ_BYTES)
        if data is None:
            return False
        if not data:
            self._loop.remove_reader(pipe.fileno())
            pipe.close()
            del self._pipes[error]
        assert self._on_output is not None
        self._on_output(data, error)
        return bool(data)

    def _drain(self) -> None:
        """Pass on the last it has printed. Something that it has left behind may hold the pipes open for ever."""
        assert self._on_output is not None
        for error in list(self._pipes):
            while self._read(error):
                pass
        left = list(self._pipes)
        self._close_pipes()
        for error in left:
            self._on_output(b"", error)

    def _close_pipes(self) -> None:
        for pipe in self._pipes.values():
            if self._on_output is not None:
                self._loop.remove_reader(pipe.fileno())
            pipe.close()
        self._pipes.clear()


def _socket_pair(opened: ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.callback(ours.close)
    opened.callback(theirs.close)
    ours.setblocking(False)
    return ours, theirs


def _pipe(opened: ExitStack) -> tuple[FileIO, FileIO]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    ours, theirs = FileIO(reading, "r"), FileIO(writing, "w")
    opened.callback(ours.close)
    opened.callback(theirs.close)
    return ours, theirs
