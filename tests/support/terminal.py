"""A program on a terminal of its own, of which the test sees what it shows."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

_PATIENCE_S = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A running program.

    Attributes:
        process: the program; its standard input is a pipe.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", ours: int) -> None:
        self.process = process
        self._ours = ours
        self._shown = b""

    @property
    def shown(self) -> str:
        """All that was written to the terminal so far, with its control sequences."""
        return self._shown.decode(errors="replace")

    def wait_for(self, *texts: str, times: int = 1) -> None:
        """Return once the program has written each of the texts so many times."""
        self.wait_until(lambda: all(self.shown.count(text) >= times for text in texts), f"{texts}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.shown}"
            assert self._read(0.05) is not None, f"the program ended before {what}: {self.shown}"

    def finish(self, line: str | None = None) -> int:
        """Send the program a line, if it waits for one, and read to its end: the exit status."""
        if self.process.stdin is not None:
            if line is not None:
                self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.close()
        while self._read(_PATIENCE_S):
            pass
        return self.process.wait(_PATIENCE_S)

    def lines(self) -> list[str]:
        """The lines that stay on the terminal, if none but the last is ever drawn anew."""
        plain = _ESCAPES.sub("", self.shown.replace("\r\n", "\n"))
        return [line.rpartition("\r")[2] for line in plain.split("\n")]

    def _read(self, timeout_s: float) -> bytes | None:
        """What comes next; None at the end."""
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return b""
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # the program has closed its terminal
            return None
        self._shown += data
        return data or None


@contextmanager
def on_terminal(
    arguments: Sequence[str], *, output: Path | None = None, **variables: str
) -> Iterator[Terminal]:
    """A Python program whose standard output and error are a terminal of 160 columns.

    Args:
        arguments: of the interpreter.
        output: where its standard output goes instead.
        variables: environment variables.
    """
    ours, theirs = pty.openpty()
    others = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = {**others, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40", **variables}
    with nullcontext(theirs) if output is None else output.open("wb") as standard_output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=standard_output,
            stderr=theirs,
            env=environment,
        )
    os.close(theirs)
    try:
        with process:
            try:
                yield Terminal(process, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)
