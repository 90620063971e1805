"""Programs that the server runs for as long as they take, such as pip, and ends when it stops."""

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from halimede.core.errors import InternalError
from halimede.workers.exit_reason import ExitReason

_LAST_LINES = 12


class ProgramError(Exception):
    """A program could not be run or failed.

    Its text says what became of it, and holds the last lines that it printed.

    Attributes:
        said: only those lines, or what became of it if there are none.
    """

    def __init__(self, words: str, lines: Sequence[str] = ()) -> None:
        super().__init__(":\n".join([words, *lines[:1]]) + "".join(f"\n{line}" for line in lines[1:]))
        self.said = "\n".join(lines) or words


class Programs:
    """The programs that run now. May be used from any thread."""

    def __init__(self) -> None:
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str | None] | None = None,
        directory: Path | None = None,
        standard_input: IO[bytes] | None = None,
        descriptors: Sequence[int] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """Run a program to its end.

        Args:
            arguments: the program and its arguments.
            environment: variables that are set, or with None removed, on top of the server's.
            directory: where it runs; None for where the server runs.
            standard_input: what it reads.
            descriptors: what it holds open as long as it runs.
            on_line: gets each line that it prints, on standard output or error.

        Raises:
            ProgramError: it cannot be run, or failed.
            InternalError: the server is stopping.
        """
        changed = {**os.environ, **(environment or {})}
        with self._lock:
            self.check_open()
            try:
                # a session of its own: neither the terminal's signals reach it, nor do its children outlive it
                process = subprocess.Popen(  # noqa: S603 - the server's own programs and those of environments
                    arguments,
                    stdin=standard_input or subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={name: value for name, value in changed.items() if value is not None},
                    cwd=directory,
                    pass_fds=descriptors,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProgramError(f"cannot run '{arguments[0]}': {error.strerror}") from None
            self._running.add(process)
        lines: deque[str] = deque(maxlen=_LAST_LINES)
        assert process.stdout is not None
        with process.stdout:
            for data in process.stdout:
                line = data.decode(errors="replace").rstrip()
                lines.append(line)
                if on_line is not None:
                    on_line(line)
        # while it has not been waited for, its number is still its own
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._running.discard(process)
            status = process.wait()
        self.check_open()
        if status:
            # as `subprocess` tells it, a signal is a negative status
            reason = ExitReason(-status if status < 0 else status << 8)
            raise ProgramError(reason.words, [line for line in lines if line])

    def check_open(self) -> None:
        """Raise an InternalError if the server is stopping."""
        if self.closing.is_set():
            raise InternalError("the server is stopping")

    def close(self) -> None:
        """Kill all that run; whoever waits for one gets an error."""
        with self._lock:
            self.closing.set()
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
