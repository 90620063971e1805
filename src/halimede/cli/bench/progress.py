"""How a measurement proceeds, on standard error: one line that changes in a terminal, a line now and then elsewhere."""

import os
import sys
import time

from halimede.bench.measure import Progress
from halimede.bench.plots import number

_EVERY_S = 5.0


class ProgressLine:
    """What was seen last.

    Attributes:
        before: what the line begins with, such as which of several measurements it is.
    """

    def __init__(self, *, verbose: bool) -> None:
        self.before = ""
        self._live = sys.stderr.isatty()
        self._verbose = verbose
        self._shown_at = 0.0

    def show(self, progress: Progress) -> None:
        """Show it, unless nobody looks."""
        at = time.monotonic()
        if not self._live and (not self._verbose or at - self._shown_at < _EVERY_S):
            return
        self._shown_at = at
        window = f"window {progress.window}" if progress.window else "warm-up"
        line = (
            f"{self.before}{progress.level}, {window}: {number(round(progress.rate, 1))} requests/s, "
            f"p50 {number(round(progress.p50_ms, 3))} ms, p99 {number(round(progress.p99_ms, 3))} ms, "
            f"{progress.under_way} under way"
        )
        if progress.errors:
            line += f", {progress.errors} failed"
        if self._live:
            self._draw(line)
        else:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def wait_for(self, what: str) -> None:
        """Show, in a terminal, what there is to wait for until a measurement begins."""
        if self._live:
            self._draw(f"{self.before}{what}")

    def clear(self) -> None:
        """Leave the line empty."""
        if self._live:
            self._draw("")

    def _draw(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line[: _columns() - 1]}")  # a line that wraps could not be taken back
        sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
