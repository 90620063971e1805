"""How a measurement proceeds, on standard error: one line that changes in a terminal, a line now and then elsewhere."""

import sys
import time

from halimede.bench.measure import Progress
from halimede.bench.plots import number

_EVERY_S = 5.0


class ProgressLine:
    """What was seen last."""

    def __init__(self, *, verbose: bool) -> None:
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
            f"{progress.level}, {window}: {number(round(progress.rate, 1))} requests/s, "
            f"p50 {number(round(progress.p50_ms, 3))} ms, p99 {number(round(progress.p99_ms, 3))} ms, "
            f"{progress.under_way} under way"
        )
        if progress.errors:
            line += f", {progress.errors} failed"
        sys.stderr.write(f"\r\x1b[K{line}" if self._live else f"{line}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Leave the line empty."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
